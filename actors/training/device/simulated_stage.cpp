#include "actors/training/device/simulated_stage.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "actors/protocol/actor_state.hpp"
#include "actors/training/collectives/gradient_all_reduce.hpp"
#include "gpu/device/simulated_tensor.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

gpu::simulated_values::place place_of(const stage_setup& s) {
  return {s.name.stage,      s.stages,   s.first_microbatch(),
          s.first_iteration, s.how.seed, tied_to_another(s)};
}

/// Those of its replica, if that has any.
std::shared_ptr<gpu::simulated_values> values_of(const stage_options& o) {
  auto values = o.replica ? o.replica->values() : nullptr;
  if (!values) values = std::make_shared<gpu::simulated_values>(place_of(o.setup));
  if (o.replica) o.replica->set_values(values);
  return values;
}

}  // namespace

simulated_stage::simulated_stage(stage_actor::pointer self, const stage_options& o,
                                 gpu::stage_device::done done)
    : self_{self},
      o_{o},
      done_{std::move(done)},
      values_{values_of(o)},
      device_{o.setup.costs, values_, o.slowdown,
              [this](double s, event what) { call_after(nanoseconds_of(s), std::move(what)); }},
      node_link_{o.same_node, [this] { return std::llround(o_.messenger.now_s() * 1e9); },
                 [this](time_ns ns, event what) {
                   call_after(std::chrono::nanoseconds{ns}, std::move(what));
                 }} {}

void simulated_stage::call_after(std::chrono::nanoseconds wait, event what) {
  send_later(self_, wait, call_now{std::move(what)});
}

// Checkpoints have no files, so that only the start of the program takes time.
bool simulated_stage::start(std::uint64_t) {
  if (o_.start_s <= 0 || o_.setup.shares_with) return false;
  call_after(nanoseconds_of(o_.start_s * (o_.slowdown ? o_.slowdown() : 1)),
             [this] { done_(gpu::outcome{}); });
  return true;
}

gpu::stage_device::done simulated_stage::unless_abandoned() {
  return [this, began = abandoned()](expected<gpu::outcome> r) {
    if (began == abandoned()) done_(std::move(r));
  };
}

void simulated_stage::submit(gpu::operation o) {
  if (!released_) device_.submit(std::move(o), unless_abandoned());
}

void simulated_stage::submit_norms(gpu::operations::norms n) {
  if (!released_) device_.submit_norms(std::move(n), unless_abandoned());
}

void simulated_stage::submit_state(const state_name&) {
  submit({gpu::operations::digest{}});
}

expected<payload> simulated_stage::take_state() {
  return gpu::simulated_tensor(values_->state());
}

expected<void> simulated_stage::submit_new_state(const payload& state, const state_name&) {
  const auto digest = gpu::digest_in(state);
  if (!digest) return refuse(reason::kind::malformed, "a simulated state has no digest");
  values_->set_state(*digest);
  submit({gpu::operations::digest{}});
  return {};
}

// The replica's values may be another pipeline's, which has other data.
expected<void> simulated_stage::add_inputs(gpu::operations::forward& step, std::uint64_t iteration,
                                           payload activation) {
  step.input = std::move(activation);
  gpu::simulated_values::add_data(step, place_of(o_.setup), iteration);
  return {};
}

stage_gradients simulated_stage::take_gradients(gpu::own_and_tied g) const {
  const auto all = o_.setup.costs.gradient_bytes, tied = o_.setup.costs.tied_bytes;
  return {std::move(g.own), std::move(g.tied), all - std::min(all, tied), tied};
}

/// Other tensors share the link's bandwidth: there may be eight of them ahead.
double simulated_stage::expected_transfer_s(std::uint64_t bytes) const {
  constexpr double queued_tensors = 8;
  return queued_tensors * o_.slowest_lan.alone_s(static_cast<double>(bytes));
}

bool simulated_stage::carry(const stage_name& to, std::uint64_t bytes,
                            std::function<void()> deliver) {
  node_link_.send({to.pipeline, to.stage}, bytes, std::move(deliver));
  return true;
}

}  // namespace troupe::actors
