#include "actors/training/device/simulated_stage.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "actors/protocol/actor_state.hpp"
#include "actors/training/collectives/gradient_all_reduce.hpp"

namespace troupe::actors {

namespace {

gpu::simulated_values::place place_of(const stage_setup& s) {
  return {s.name.stage,      s.stages,   s.first_microbatch(),
          s.first_iteration, s.how.seed, tied_to_another(s)};
}

}  // namespace

simulated_stage::simulated_stage(stage_actor::pointer self, const stage_options& o,
                                 gpu::stage_device::done done)
    : self_{self},
      o_{o},
      done_{std::move(done)},
      device_{o.setup.costs, place_of(o.setup), o.slowdown,
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
  if (o_.start_s <= 0) return false;
  call_after(nanoseconds_of(o_.start_s * (o_.slowdown ? o_.slowdown() : 1)),
             [this] { done_(gpu::outcome{}); });
  return true;
}

void simulated_stage::submit(gpu::operation o) {
  if (!released_) device_.submit(std::move(o), done_);
}

void simulated_stage::submit_norms(gpu::operations::norms n) {
  if (!released_) device_.submit_norms(std::move(n), done_);
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
