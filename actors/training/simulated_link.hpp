#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "messages/flow_share.hpp"
#include "messages/tensor_way.hpp"

namespace troupe::actors {

/// What a simulated stage's GPUs send to others of their node: what goes to different stages at
/// once shares the link. (What leaves the node shares the network's; runtime/virtual.)
class simulated_link {
 public:
  using event = std::function<void()>;
  using clock = std::function<time_ns()>;
  /// Calls a function so many nanoseconds from now.
  using timer = std::function<void(time_ns, event)>;

  simulated_link(tensor_way way, clock now, timer after)
      : way_{way}, now_{std::move(now)}, after_{std::move(after)} {}
  simulated_link(const simulated_link&) = delete;  // timers know where it is
  simulated_link& operator=(const simulated_link&) = delete;

  using to_stage = std::pair<std::uint32_t, std::uint32_t>;  // of a pipeline

  /// Calls `there` when the bytes have come.
  void carry(const to_stage& to, std::uint64_t bytes, event there) {
    share_.start(now_(), to, std::round(way_.alone_s(static_cast<double>(bytes)) * 1e9), ++last_);
    under_way_.emplace(last_, std::move(there));
    wait();
  }

 private:
  /// A transfer that starts makes the others end later: the timer for the first end may find that
  /// it is early.
  void wait() {
    const auto end = share_.next_end();
    if (!end || *end >= looks_at_) return;
    looks_at_ = *end;
    after_(*end - now_(), [this] { look(); });
  }

  void look() {
    const auto now = now_();
    if (now >= looks_at_) looks_at_ = never_ns;
    while (const auto ended = share_.take_ended(now)) {
      const auto at = under_way_.find(*ended);
      after_(std::llround(way_.latency_s * 1e9), std::move(at->second));
      under_way_.erase(at);
    }
    wait();
  }

  tensor_way way_;
  clock now_;
  timer after_;
  flow_share<to_stage> share_;
  std::map<std::uint64_t, event> under_way_;
  std::uint64_t last_ = 0;
  time_ns looks_at_ = never_ns;
};

}  // namespace troupe::actors
