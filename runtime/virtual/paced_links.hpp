#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "messages/base/random.hpp"
#include "messages/domain/cluster.hpp"
#include "runtime/host/link_pacing.hpp"

namespace troupe::runtime {

/// Slowdown factor of tensors to a datacenter (a fault of a simulated link).
using link_slowdown = std::function<double(std::uint32_t datacenter)>;

/// Rates of a link. 0 Gbit/s: unlimited.
struct link_rates {
  double node_gbps = 0;        // a pair of nodes
  double connection_gbps = 0;  // each of its connections
  time_ns delay_ns = 0;        // one way
  time_ns jitter_ns = 0;       // up to so much more, but nothing overtakes
  // By size: of a pair of nodes, in place of node_gbps; of one GPU's flow.
  std::optional<std::vector<link_rate>> rates{}, flow_rates{};

  /// Time for these bytes over one pair, rounded to whole nanoseconds. `tensor_bytes`: of the whole
  /// transfer, whose size the rate depends on; `flows`: GPUs that send it.
  time_ns duration_ns(double bytes, std::uint32_t connections, double tensor_bytes = 0,
                      std::uint32_t flows = 1) const;
};

/// The WAN links of one datacenter by the cluster file's rates.
class paced_links final : public link_pacing {
 public:
  /// To each datacenter; nothing: that link is not paced.
  using rates = std::vector<std::optional<link_rates>>;

  explicit paced_links(rates to, random_source random = random_source{0}, link_slowdown slow = {})
      : to_{std::move(to)}, random_{random}, slow_{std::move(slow)} {}
  /// Those of this datacenter's links, which follow the cluster.
  paced_links(const cluster& c, std::uint32_t datacenter, bool only_emulated, random_source random,
              link_slowdown slow = {});

  void follow(const cluster& c) override;
  bool paces(std::uint32_t datacenter) const override { return to_[datacenter].has_value(); }
  time_ns delay_ns(std::uint32_t datacenter) const override {
    return to_[datacenter] ? to_[datacenter]->delay_ns : 0;
  }
  bool start(time_ns now, std::uint32_t token, const transfer& t) override;
  void start_small(time_ns now, std::uint32_t token, std::uint32_t datacenter) override;
  time_ns next_event_at() const override { return due_.empty() ? never_ns : due_.front().at; }
  std::optional<event> take_event(time_ns now) override;
  void forget(time_ns before) override;
  std::size_t hops() const { return hops_.size(); }

  static constexpr std::uint32_t max_pairs = 4096;
  static constexpr std::uint32_t max_parts = 4096;
  static constexpr time_ns longest_ns = 1'000'000'000'000'000;  // of a transfer, and of a queue

 private:
  struct pair {
    time_ns free_at = 0;  // when the last of its transfers will have left,
    time_ns last_arrival = 0;
  };
  struct hop {
    time_ns last_used = 0;
    std::uint32_t under_way = 0;  // transfers
    std::vector<pair> pairs;
  };
  using hop_key = std::tuple<lease_id, std::uint32_t, std::uint32_t>;  // from a stage to a stage
  struct running {
    hop* over = nullptr;  // none: something small
    std::uint32_t parts = 1;
    time_ns start = 0, duration = 0, lag = 0;  // lag: from leaving to arriving
  };
  struct entry {
    time_ns at = 0;
    std::uint64_t sequence = 0;
    std::uint32_t token = 0, part = 0;  // part == parts: it has left
  };
  static bool later(const entry& a, const entry& b) {
    return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
  }

  running& slot(std::uint32_t token);
  link_rates rates_now(std::uint32_t datacenter) const;
  void schedule(time_ns at, std::uint32_t token, std::uint32_t part);

  rates to_;
  std::optional<std::pair<std::uint32_t, bool>> of_;  // the datacenter; only emulated links
  random_source random_;
  link_slowdown slow_;
  std::uint64_t sequence_ = 0;
  std::vector<entry> due_;        // a heap
  std::vector<running> running_;  // by token
  std::map<hop_key, hop> hops_;
};

/// The rates of a datacenter's links: of all, or of those alone that the cluster file emulates.
paced_links::rates rates_from(const cluster& c, std::uint32_t datacenter, bool only_emulated);

}  // namespace troupe::runtime
