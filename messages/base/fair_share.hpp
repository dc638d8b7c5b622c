#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"

namespace troupe {

/// One direction of a link, shared by concurrent transfers: all have the same rate, 1/n of the
/// capacity, but never more than one connection carries, nor than their own limit (max-min fairness
/// on one link).
///
/// Transfers with the same limit have equal rates, so it is enough to count the bytes that any one
/// of them would have received since none of them was there: a transfer ends when that count has
/// grown by its size. Starting and ending a transfer cost O(log n), and O(limits) to share. Times
/// are nanoseconds.
class fair_share {
 public:
  /// `connection_bytes_s` <= 0: one connection can fill the link.
  fair_share(double capacity_bytes_s, double connection_bytes_s)
      : capacity_bytes_ns_{capacity_bytes_s * 1e-9},
        connection_bytes_ns_{connection_bytes_s > 0 ? connection_bytes_s * 1e-9
                                                    : capacity_bytes_ns_},
        kinds_{{.max_rate = connection_bytes_ns_}} {}

  std::size_t transfers() const { return transfers_; }

  /// The rate of each of n transfers without limits of their own, in bytes per nanosecond.
  double rate(std::size_t n) const {
    return std::min(connection_bytes_ns_,
                    capacity_bytes_ns_ / static_cast<double>(std::max<std::size_t>(n, 1)));
  }

  /// The duration of a transfer on an otherwise idle link, rounded up.
  time_ns alone(double bytes) const { return static_cast<time_ns>(std::ceil(bytes / rate(1))); }

  /// Starts `count` transfers of that many bytes each, which end together. `share`: each gets no
  /// more of the capacity; 1 or more: no limit beside a connection's.
  void start(time_ns now, double bytes, std::uint64_t token, std::size_t count = 1,
             double share = 1) {
    advance(now);
    const double max = share < 1 ? std::min(connection_bytes_ns_, share * capacity_bytes_ns_)
                                 : connection_bytes_ns_;
    auto& k = kind_of(max);
    k.active.push_back({k.served + bytes, ++sequence_, token, count});
    k.transfers += count;
    transfers_ += count;
    std::push_heap(k.active.begin(), k.active.end(), later);
    set_rates();
  }

  /// When the next transfer ends if no other starts before, rounded up.
  std::optional<time_ns> next_end() const {
    const auto i = next_kind();
    if (i == kinds_.size()) return std::nullopt;
    return end_of(kinds_[i]);
  }

  /// Removes a transfer that has ended by now; of several, the first.
  std::optional<std::uint64_t> take_ended(time_ns now) {
    const auto i = next_kind();
    if (i == kinds_.size() || end_of(kinds_[i]) > now) return std::nullopt;
    auto& k = kinds_[i];
    const auto ended = k.active.front();
    advance(now);
    k.served = std::max(k.served, ended.end);
    TROUPE_INVARIANT(k.transfers >= ended.count && transfers_ >= ended.count,
                     "a transfer that ends had been started");
    k.transfers -= ended.count;
    transfers_ -= ended.count;
    std::pop_heap(k.active.begin(), k.active.end(), later);
    k.active.pop_back();
    if (k.active.empty()) k.served = 0;
    set_rates();
    return ended.token;
  }

 private:
  struct transfer {
    double end = 0;  // value of `served` at which it ends
    std::uint64_t sequence = 0, token = 0;
    std::size_t count = 1;
  };
  /// The transfers with one limit.
  struct kind {
    double max_rate = 0;  // of each of them, bytes per nanosecond
    double rate = 0;      // of each of them, now
    double served = 0;    // bytes that each of them got since there was none
    std::vector<transfer> active{};
    std::size_t transfers = 0;  // their number
  };
  static bool later(const transfer& a, const transfer& b) {
    return a.end > b.end || (a.end == b.end && a.sequence > b.sequence);
  }

  /// In ascending order of their limits; the last is that of transfers without their own. Kinds
  /// that nobody uses any more make room for new ones.
  kind& kind_of(double max_rate) {
    const auto at = std::ranges::find(kinds_, max_rate, &kind::max_rate);
    if (at != kinds_.end()) return *at;
    std::erase_if(kinds_, [&](const kind& k) {
      return k.active.empty() && k.max_rate != connection_bytes_ns_;
    });
    const auto place = std::ranges::upper_bound(kinds_, max_rate, {}, &kind::max_rate);
    return *kinds_.insert(place, {.max_rate = max_rate});
  }

  /// Those that are limited to less than an equal share leave the rest of it to the others.
  void set_rates() {
    if (kinds_.size() == 1) {
      kinds_[0].rate = rate(transfers_);
      return;
    }
    double capacity = capacity_bytes_ns_;
    auto left = static_cast<double>(transfers_);
    for (auto& k : kinds_) {
      if (k.transfers == 0) continue;
      const auto n = static_cast<double>(k.transfers);
      k.rate = std::min(k.max_rate, capacity / left);
      capacity -= n * k.rate;
      left -= n;
    }
  }

  /// That of the transfer that ends next; their number: there is none.
  std::size_t next_kind() const {
    auto next = kinds_.size();
    std::pair<time_ns, std::uint64_t> first{};
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i].active.empty()) continue;
      const std::pair when{end_of(kinds_[i]), kinds_[i].active.front().sequence};
      if (next < kinds_.size() && first < when) continue;
      first = when;
      next = i;
    }
    return next;
  }
  time_ns end_of(const kind& k) const {
    const double left = std::max(0.0, k.active.front().end - k.served);
    return at_ + static_cast<time_ns>(std::ceil(left / k.rate - 1e-6));
  }

  void advance(time_ns now) {
    for (auto& k : kinds_)
      if (!k.active.empty()) k.served += k.rate * static_cast<double>(now - at_);
    at_ = now;
  }

  double capacity_bytes_ns_, connection_bytes_ns_;
  time_ns at_ = 0;  // time of what was served
  std::uint64_t sequence_ = 0;
  std::vector<kind> kinds_;
  std::size_t transfers_ = 0;  // the number of all
};

}  // namespace troupe
