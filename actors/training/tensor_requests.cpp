#include "actors/training/tensor_requests.hpp"

#include <algorithm>

#include "actors/protocol/timing.hpp"

namespace troupe::actors {

void tensor_requests::await(const place& p, double after_s) {
  awaited_ = p;
  waiting_since_s_ = owner_.now_s();
  check_at(waiting_since_s_ + after_s);
}

/// There is one timer, for the earliest time; when it fires, it is set for the next one. A timer
/// that was set for a later time fires without effect.
void tensor_requests::check_at(double at_s) {
  request_at_s_ = at_s;
  if (timer_at_s_ <= at_s) return;
  timer_at_s_ = at_s;
  owner_.call_after(at_s - owner_.now_s(), [this, at_s] {
    if (timer_at_s_ != at_s) return;
    timer_at_s_ = never;
    request();
  });
}

void tensor_requests::request() {
  const auto requests = owner_.missing();
  if (requests.empty()) return;
  const double now_s = owner_.now_s();
  if (now_s + timer_rounding_s < request_at_s_) return check_at(request_at_s_);
  double retry_s = never_s;
  for (const auto& r : requests) {
    owner_.send(r);
    retry_s = std::min(retry_s, r.older_than_s / 2);
  }
  // After a long wait the cause is usually a slow stage, not a lost tensor: request less often.
  check_at(now_s + std::max(retry_s, (now_s - waiting_since_s_) / 8));
}

}  // namespace troupe::actors
