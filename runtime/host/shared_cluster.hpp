#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "messages/domain/address.hpp"
#include "messages/domain/cluster.hpp"

namespace troupe {

/// Does every index in it name something?
inline bool indices_exist(const cluster& c) {
  const auto sites = c.datacenters.size(), types = c.gpus.size();
  return std::ranges::all_of(
             c.nodes, [&](const node& n) { return n.datacenter < sites && n.gpu < types; }) &&
         std::ranges::all_of(c.fronts, [&](const front& f) { return f.datacenter < sites; }) &&
         std::ranges::all_of(c.wan,
                             [&](const wan_link& w) { return w.a < sites && w.b < sites; }) &&
         std::ranges::all_of(c.prices, [&](const gpu_price& p) {
           return p.gpu < types && p.datacenter.value_or(0) < sites;
         });
}

/// A host's cluster, shared by its actors and its transport: always the newest version. Versions
/// stay in memory, so references to an older one remain valid; there are as many as an operator has
/// made since the host started. Thread-safe.
class shared_cluster {
 public:
  shared_cluster() = default;
  shared_cluster(std::shared_ptr<const cluster> first) {
    if (first) all_ = std::make_shared<versions>(std::move(first));
  }
  shared_cluster(std::shared_ptr<cluster> first)
      : shared_cluster(std::shared_ptr<const cluster>{std::move(first)}) {}
  shared_cluster(cluster first)
      : shared_cluster(std::make_shared<const cluster>(std::move(first))) {}

  explicit operator bool() const { return all_ != nullptr; }
  const cluster& operator*() const { return *all_->now.load(std::memory_order_acquire); }
  const cluster* operator->() const { return all_->now.load(std::memory_order_acquire); }

  /// The controller's cluster takes the place of what the host's own file says.
  void replace(cluster by) const { all_->add(std::make_shared<const cluster>(std::move(by))); }
  /// False: it is no newer.
  bool adopt(const cluster& newer) const {
    if (newer.version <= (*this)->version) return false;
    replace(newer);
    return true;
  }

 private:
  struct versions {
    explicit versions(std::shared_ptr<const cluster> first) { add(std::move(first)); }
    void add(std::shared_ptr<const cluster> c) {
      const std::lock_guard guard{mutex};
      now.store(c.get(), std::memory_order_release);
      all.push_back(std::move(c));
    }
    std::mutex mutex;
    std::vector<std::shared_ptr<const cluster>> all;
    std::atomic<const cluster*> now{nullptr};
  };
  std::shared_ptr<versions> all_;
};

/// May a host with this number follow `newer`? It must have all hosts that `older` has, under their
/// numbers: others may be using these.
inline bool may_follow(const cluster& older, const cluster& newer, address self) {
  const auto begins_with = [](const auto& all, const auto& first) {
    return all.size() >= first.size() &&
           std::ranges::equal(
               first, std::span{all}.first(first.size()), {}, [](const auto& x) { return x.name; },
               [](const auto& x) { return x.name; });
  };
  return begins_with(newer.datacenters, older.datacenters) &&
         begins_with(newer.nodes, older.nodes) && begins_with(newer.fronts, older.fronts) &&
         begins_with(newer.gpus, older.gpus) && host_name(newer, self) == host_name(older, self) &&
         indices_exist(newer);
}

}  // namespace troupe
