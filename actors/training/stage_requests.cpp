// What a stage does about tensors that do not come: it asks for them again, and sends again what
// others ask it for.
#include <algorithm>
#include <utility>
#include <vector>

#include "actors/protocol/timing.hpp"
#include "actors/training/stage.hpp"

namespace troupe::actors {

namespace {

constexpr double usual_bytes_s = 125e6;  // of a link that nothing is known of
constexpr double queued_tensors = 8;     // that may be on a link before one
constexpr double rounding_s = 1e-6;
constexpr double no_request_s = 3600;  // nobody else has what is missing

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
  return phase_ == phase::steps && !busy_ && !broken_ && iteration_ < until_ &&
         next_ < o_.setup.order.size() && !ready(o_.setup.order[next_]);
}

/// After so long a tensor that has not come is asked for.
double stage_state::request_after_s(tensor::kind k) const {
  const auto& costs = o_.setup.costs;
  const bool one_microbatch = k == tensor::kind::activation || k == tensor::kind::gradient;
  const bool of_peers = k == tensor::kind::part || k == tensor::kind::sum;
  const auto bytes = one_microbatch ? costs.activation_bytes
                     : of_peers     ? costs.gradient_bytes
                                    : costs.tied_bytes;
  // A simulated link is as slow as the cluster file says, and others' tensors may be on it.
  const double expected_s =
      simulated_ ? queued_tensors * o_.slowest_lan.alone_s(static_cast<double>(bytes))
                 : static_cast<double>(bytes) / usual_bytes_s;
  return timeout_.after_s(k, std::max(costs.wan_s, expected_s));
}

/// It can go on only when something comes: from now on it looks whether that has been lost.
void stage_state::await_tensors() {
  const std::pair place{iteration_, phase_ == phase::steps ? next_ : o_.setup.order.size()};
  if (place == awaited_) return;
  awaited_ = place;
  waits_since_s_ = o_.via.now_s();
  double after_s = no_request_s;
  if (phase_ == phase::steps)
    after_s = request_after_s(o_.setup.order[next_].what == stage_step::kind::forward
                                  ? tensor::kind::activation
                                  : tensor::kind::gradient);
  else
    for (const auto& r : missing()) after_s = std::min(after_s, r.older_than_s);
  look_for_missing_at(waits_since_s_ + after_s);
}

/// Of several times the earliest counts, and looks at the others then.
void stage_state::look_for_missing_at(double at_s) {
  ask_at_s_ = at_s;
  if (look_at_s_ <= at_s) return;
  look_at_s_ = at_s;
  self_->delayed_send(stage_actor{self_}, nanoseconds_of(at_s - o_.via.now_s()),
                      call_now{[this, at_s] {
                        if (look_at_s_ != at_s) return;
                        look_at_s_ = never_s;
                        look_for_missing();
                      }});
}

void stage_state::look_for_missing() {
  const auto requests = missing();
  if (requests.empty()) return;
  const double now_s = o_.via.now_s();
  if (now_s + rounding_s < ask_at_s_) return look_for_missing_at(ask_at_s_);
  double again_s = no_request_s;
  for (const auto& r : requests) {
    o_.via.send(place_of(r.to_pipeline, r.to_stage), r);
    again_s = std::min(again_s, r.older_than_s / 2);
  }
  // Who has waited for long waits for a slow stage, as a rule, and not for what was lost.
  look_for_missing_at(now_s + std::max(again_s, (now_s - waits_since_s_) / 8));
}

/// A request to each stage on another host that has something which this one waits for.
std::vector<tensor_request> stage_state::missing() const {
  std::vector<tensor_request> result;
  const auto& me = o_.setup.name;
  const auto add = [&](tensor::kind what, std::uint32_t pipeline, std::uint32_t stage,
                       std::vector<std::uint32_t> microbatches) {
    if (place_of(pipeline, stage) == o_.via.self()) return;
    result.push_back(
        {what, me, pipeline, stage, iteration_, std::move(microbatches), request_after_s(what)});
  };
  const auto& box = current();
  if (waits_for_neighbour()) {
    if (auto all = missing_of(box.activation); !first() && !all.empty())
      add(tensor::kind::activation, me.pipeline, me.stage - 1, std::move(all));
    if (auto all = missing_of(box.gradient); !last() && !all.empty())
      add(tensor::kind::gradient, me.pipeline, me.stage + 1, std::move(all));
  } else if (phase_ == phase::exchange && !busy_ && !broken_) {
    for (const auto& m : joined_ ? box.among_devices.missing() : box.sum.missing())
      add(m.what, m.from_pipeline, m.from_stage, {});
  }
  return result;
}

/// Another stage has waited too long.
void stage_state::send_again(const tensor_request& r) {
  for (auto& again : sent_.due(r, o_.via.now_s())) {
    auto& t = again.what;
    t.sent_s = time();
    if (t.share.pairs > 0) doing_.sent_bytes += t.bytes;
    o_.via.send(place_of(t.to_pipeline, t.to_stage), t, std::move(again.body));
  }
}

/// Its last tensors may be lost on the way: it stays, without its device.
void stage_state::retire() {
  retired_ = true;
  o_.device = nullptr;
}

}  // namespace troupe::actors
