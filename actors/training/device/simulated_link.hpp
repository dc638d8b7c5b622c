#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "messages/base/flow_share.hpp"
#include "messages/domain/link_cost.hpp"

namespace troupe::actors {

/// The link from a simulated stage's GPUs to others of their node. Concurrent tensors to different
/// stages share its bandwidth equally, those to one stage follow each other. (runtime/virtual
/// simulates the network between nodes.)
class simulated_link {
 public:
  using event = std::function<void()>;
  using clock = std::function<time_ns()>;
  /// Calls a function after a number of nanoseconds.
  using timer = std::function<void(time_ns, event)>;

  simulated_link(link_cost link, clock now, timer after)
      : link_{link}, now_{std::move(now)}, after_{std::move(after)} {}
  simulated_link(const simulated_link&) = delete;  // timers hold its address
  simulated_link& operator=(const simulated_link&) = delete;

  using to_stage = std::pair<std::uint32_t, std::uint32_t>;  // of a pipeline

  /// Calls `delivered` when the bytes have arrived.
  void send(const to_stage& to, std::uint64_t bytes, event delivered) {
    const auto size = static_cast<double>(bytes);
    flows_.start(now_(), to, std::round(link_.link_s(size) * 1e9), ++last_, 1, link_.share(size));
    in_flight_.emplace(last_, std::move(delivered));
    set_timer();
  }

 private:
  /// A new transfer delays the others' ends, so the timer may fire before the first of them.
  void set_timer() {
    const auto end = flows_.next_end();
    if (!end || *end >= timer_at_) return;
    timer_at_ = *end;
    after_(*end - now_(), [this] { on_timer(); });
  }

  void on_timer() {
    const auto now = now_();
    if (now >= timer_at_) timer_at_ = never_ns;
    while (const auto ended = flows_.take_ended(now)) {
      const auto at = in_flight_.find(*ended);
      after_(std::llround(link_.latency_s * 1e9), std::move(at->second));
      in_flight_.erase(at);
    }
    set_timer();
  }

  link_cost link_;
  clock now_;
  timer after_;
  flow_share<to_stage> flows_;
  std::map<std::uint64_t, event> in_flight_;
  std::uint64_t last_ = 0;
  time_ns timer_at_ = never_ns;
};

}  // namespace troupe::actors
