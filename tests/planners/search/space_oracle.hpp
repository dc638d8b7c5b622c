#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "planners/search/space/space_problem.hpp"
#include "planners/search/space/space_times.hpp"

namespace troupe::harness {

/// Every plan of a problem, one by one: GPUs are given to pipelines node by node, and micro-batches
/// one by one. Shares only the plan's value with the search.
class space_oracle {
 public:
  space_oracle(const planners::space_problem& p, const planners::space_times& times)
      : times_{times}, p_{p} {}

  /// The best score of all plans; infinite: none keeps the limits.
  double best() {
    for (std::uint32_t bits = 0; bits < 1U << (p_.pieces - 1); ++bits) {
      firsts_ = {0};
      for (std::uint32_t i = 1; i < p_.pieces; ++i)
        if (bits >> (i - 1) & 1U) firsts_.push_back(i);
      if (firsts_.size() > p_.max_stages || !cut_allowed()) continue;
      list_seats();
      for (const auto rows : p_.rows) {
        if (!p_.space.searched_rows && rows != p_.rows.front()) continue;
        rows_ = rows;
        pipelines_.clear();
        add_pipelines(0);
      }
    }
    return best_;
  }
  std::uint64_t valued() const { return valued_; }

 private:
  using seats = std::vector<planners::space_seat>;
  struct pipeline {
    std::size_t line = 0;
    std::uint32_t microbatches = 0;
  };

  bool cut_allowed() const {
    if (p_.space.free_cut) return true;
    for (std::size_t i = 0; i < firsts_.size(); ++i)
      if (firsts_[i] != i * p_.pieces / firsts_.size()) return false;
    return true;
  }

  void list_seats() {
    all_.clear();
    std::size_t combinations = 1;
    const auto each = p_.classes.size() * p_.datacenters;
    for (std::size_t i = 0; i < firsts_.size(); ++i) combinations *= each;
    for (std::size_t n = 0; n < combinations; ++n) {
      seats line;
      for (auto rest = n; line.size() < firsts_.size(); rest /= each)
        line.push_back({static_cast<std::uint32_t>(rest % each % p_.classes.size()),
                        static_cast<std::uint32_t>(rest % each / p_.classes.size())});
      bool mixed = false;
      for (const auto& s : line) mixed = mixed || s.datacenter != line[0].datacenter;
      if (!mixed || (p_.space.mixed_pipelines && p_.space.several_datacenters))
        all_.push_back(std::move(line));
    }
  }

  /// Adds pipelines of the line `from` or a later one, as long as nodes have GPUs for them.
  void add_pipelines(std::size_t from) {
    if (!pipelines_.empty()) deal(0, p_.samples / rows_);
    if (pipelines_.size() == p_.samples / rows_) return;
    for (auto i = from; i < all_.size(); ++i) {
      pipelines_.push_back({i, 0});
      if (placed() && in_space()) add_pipelines(i);
      pipelines_.pop_back();
    }
  }

  /// The largest stages first, each on the first node that has room: degrees are powers of two.
  bool placed() const {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> free;
    for (const auto& pool : p_.pools) free[{pool.datacenter, pool.kind}] = pool.free;
    std::vector<planners::space_seat> stages;
    for (const auto& x : pipelines_)
      for (const auto& s : all_[x.line]) stages.push_back(s);
    std::ranges::sort(stages, [&](const auto& a, const auto& b) {
      return p_.classes[a.cls].tensor > p_.classes[b.cls].tensor;
    });
    return std::ranges::all_of(stages, [&](const auto& s) {
      const auto& c = p_.classes[s.cls];
      for (auto& node : free[{s.datacenter, c.kind}])
        if (node >= c.tensor) {
          node -= c.tensor;
          return true;
        }
      return false;
    });
  }

  bool in_space() const {
    std::set<std::uint32_t> datacenters, degrees;
    std::set<std::vector<std::uint32_t>> kinds;
    for (const auto& x : pipelines_) {
      std::vector<std::uint32_t> kind;
      for (const auto& s : all_[x.line]) {
        kind.push_back(s.cls);
        datacenters.insert(s.datacenter);
        degrees.insert(p_.classes[s.cls].tensor);
      }
      kinds.insert(kind);
    }
    return (p_.space.several_kinds || kinds.size() == 1) &&
           (p_.space.tensor_by_stage || degrees.size() == 1) &&
           (p_.space.several_datacenters || datacenters.size() == 1);
  }

  /// Pipelines of one line: none has more micro-batches than the one before it.
  void deal(std::size_t at, std::uint32_t left) {
    if (at == pipelines_.size()) {
      if (left == 0) orders();
      return;
    }
    const auto others = static_cast<std::uint32_t>(pipelines_.size() - at - 1);
    for (std::uint32_t m = 1; m + others <= left; ++m) {
      if (at > 0 && pipelines_[at - 1].line == pipelines_[at].line &&
          m > pipelines_[at - 1].microbatches)
        break;
      if (!p_.space.own_shares && at > 0 && m != pipelines_[0].microbatches) continue;
      pipelines_[at].microbatches = m;
      deal(at + 1, left - m);
    }
  }

  std::vector<std::uint32_t> route(const pipeline& x) const {
    std::vector<std::uint32_t> out;
    for (const auto& s : all_[x.line]) out.push_back(s.datacenter);
    return out;
  }

  void orders() {
    std::set<std::vector<std::uint32_t>> routes;
    for (const auto& x : pipelines_) routes.insert(route(x));
    std::vector<std::vector<std::uint32_t>> order{routes.begin(), routes.end()};
    do {
      planners::space_plan plan{rows_, firsts_, {}};
      for (const auto& r : order) {
        std::vector<std::pair<seats, std::uint32_t>> here;
        for (const auto& x : pipelines_)
          if (route(x) == r) here.emplace_back(all_[x.line], x.microbatches);
        std::ranges::sort(here, [](const auto& a, const auto& b) {
          return a.first != b.first ? a.first < b.first : a.second > b.second;
        });
        for (const auto& [line, m] : here)
          if (!plan.groups.empty() && plan.groups.back().seats == line &&
              plan.groups.back().microbatches == m)
            ++plan.groups.back().pipelines;
          else
            plan.groups.push_back({1, m, line});
      }
      ++valued_;
      best_ =
          std::min(best_, planners::score_of(p_, times_.value(plan), planners::gpus_of(p_, plan)));
    } while (std::ranges::next_permutation(order).found);
  }

  const planners::space_times& times_;
  const planners::space_problem& p_;
  std::uint32_t rows_ = 1;
  std::vector<std::uint32_t> firsts_;
  std::vector<seats> all_;
  std::vector<pipeline> pipelines_;
  double best_ = std::numeric_limits<double>::infinity();
  std::uint64_t valued_ = 0;
};

}  // namespace troupe::harness
