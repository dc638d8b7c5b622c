// How a stage recovers lost tensors: it requests those that are overdue, and resends those that
// other stages request.
#include <algorithm>
#include <utility>
#include <vector>

#include "actors/protocol/timing.hpp"
#include "actors/training/stage.hpp"

namespace troupe::actors {

namespace {

constexpr double rounding_s = 1e-6;
constexpr double no_request_s = 3600;  // no other stage has what is missing

template <class T>
std::vector<std::uint32_t> missing_of(const std::vector<std::optional<T>>& box) {
  std::vector<std::uint32_t> result;
  for (std::uint32_t m = 0; m < box.size(); ++m)
    if (!box[m]) result.push_back(m);
  return result;
}

}  // namespace

/// Does it wait for a neighbour's activation or gradient?
bool stage_state::waits_for_neighbour() const {
  return phase_ == phase::steps && !busy_ && !failed_ && iteration_ < until_ &&
         next_ < o_.setup.order.size() && !ready(o_.setup.order[next_]);
}

/// How long to wait for a tensor before requesting it.
double stage_state::request_after_s(tensor::kind k) const {
  const auto& costs = o_.setup.costs;
  const bool one_microbatch = k == tensor::kind::activation || k == tensor::kind::gradient;
  const bool between_peers = k == tensor::kind::partial || k == tensor::kind::sum;
  const auto bytes = one_microbatch  ? costs.activation_bytes
                     : between_peers ? costs.gradient_bytes
                                     : costs.tied_bytes;
  return timeout_.after_s(k, std::max(costs.wan_s, executor_->expected_transfer_s(bytes)));
}

/// Called when the stage cannot continue without a tensor: starts the timer after which that is
/// requested.
void stage_state::await_tensors() {
  const std::pair place{iteration_, phase_ == phase::steps ? next_ : o_.setup.order.size()};
  if (place == awaited_) return;
  awaited_ = place;
  waiting_since_s_ = o_.messenger.now_s();
  double after_s = no_request_s;
  if (phase_ == phase::steps)
    after_s = request_after_s(o_.setup.order[next_].what == stage_step::kind::forward
                                  ? tensor::kind::activation
                                  : tensor::kind::gradient);
  else
    for (const auto& r : missing_tensors()) after_s = std::min(after_s, r.older_than_s);
  check_missing_at(waiting_since_s_ + after_s);
}

/// There is one timer, for the earliest time; when it fires, it is set for the next one.
void stage_state::check_missing_at(double at_s) {
  request_at_s_ = at_s;
  if (timer_at_s_ <= at_s) return;
  timer_at_s_ = at_s;
  self_->delayed_send(stage_actor{self_}, nanoseconds_of(at_s - o_.messenger.now_s()),
                      call_now{[this, at_s] {
                        if (timer_at_s_ != at_s) return;
                        timer_at_s_ = never;
                        request_missing();
                      }});
}

void stage_state::request_missing() {
  const auto requests = missing_tensors();
  if (requests.empty()) return;
  const double now_s = o_.messenger.now_s();
  if (now_s + rounding_s < request_at_s_) return check_missing_at(request_at_s_);
  double retry_s = no_request_s;
  for (const auto& r : requests) {
    o_.messenger.send(address_of(r.to_pipeline, r.to_stage), r);
    retry_s = std::min(retry_s, r.older_than_s / 2);
  }
  // After a long wait the cause is usually a slow stage, not a lost tensor: request less often.
  check_missing_at(now_s + std::max(retry_s, (now_s - waiting_since_s_) / 8));
}

/// A request to each stage on another host that has tensors which this one waits for.
std::vector<tensor_request> stage_state::missing_tensors() const {
  std::vector<tensor_request> result;
  const auto& me = o_.setup.name;
  const auto add = [&](tensor::kind what, std::uint32_t pipeline, std::uint32_t stage,
                       std::vector<std::uint32_t> microbatches) {
    if (address_of(pipeline, stage) == o_.messenger.self()) return;
    result.push_back(
        {what, me, pipeline, stage, iteration_, std::move(microbatches), request_after_s(what)});
  };
  const auto& box = current();
  if (waits_for_neighbour()) {
    if (auto all = missing_of(box.activation); !first() && !all.empty())
      add(tensor::kind::activation, me.pipeline, me.stage - 1, std::move(all));
    if (auto all = missing_of(box.gradient); !last() && !all.empty())
      add(tensor::kind::gradient, me.pipeline, me.stage + 1, std::move(all));
  } else if (phase_ == phase::exchange && !busy_ && !failed_) {
    for (const auto& m : joined_ ? box.device_sum.missing() : box.host_sum.missing())
      add(m.what, m.from_pipeline, m.from_stage, {});
  }
  return result;
}

void stage_state::on_tensor_request(const tensor_request& r) {
  for (auto& resent : sent_.take_due(r, o_.messenger.now_s())) {
    auto& t = resent.header;
    t.sent_s = training_time_s();
    if (t.path.pairs > 0) iteration_report_.sent_bytes += t.bytes;
    o_.messenger.resend(address_of(t.to_pipeline, t.to_stage), t, std::move(resent.body));
  }
}

/// The actor remains, without its device, to resend its last tensors should they be lost.
void stage_state::on_release_device() {
  device_released_ = true;
  if (executor_) executor_->release();
}

}  // namespace troupe::actors
