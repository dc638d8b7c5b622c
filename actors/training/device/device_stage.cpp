#include "actors/training/device/device_stage.hpp"

#include <utility>

#include "actors/training/device/stage_backend.hpp"
#include "messages/domain/device_kind.hpp"

namespace troupe::actors {

bool device_stage::start(std::uint64_t iteration) {
  if (iteration == 0 || setup_.shares_with) return false;
  submit({gpu::operations::load{checkpoint_path(setup_.how.checkpoint, iteration)}});
  return true;
}

// The actor is named only while an operation is under way: a reference that the stage's own state
// held would keep the actor alive for ever.
gpu::stage_device::done device_stage::post() const {
  return [me = stage_actor{self_}, began = abandoned()](expected<gpu::outcome> r) {
    caf::anon_send(me, device_done{std::move(r), began});
  };
}

void device_stage::submit(gpu::operation o) {
  if (backend_.device) backend_.device->submit(std::move(o), post());
}

void device_stage::submit_norms(gpu::operations::norms n) {
  if (backend_.norms) backend_.norms->submit_norms(std::move(n), post());
}

// The device writes what a checkpoint would have, so that the state is read back as that is. A
// folder that cannot be made is that of the whole node's: the device says so, as of a checkpoint.
void device_stage::submit_state(const state_name& which) {
  state_ = which;
  state_folder_.reset();
  if (auto made = socket_folder::make()) state_folder_.emplace(std::move(*made));
  submit({gpu::operations::save{.path = state_path(), .whole = true},
          false,
          {.iteration = which.iteration}});
}

std::string device_stage::state_path() const {
  return state_folder_ ? state_folder_->path() + "/state" : "/dev/null/state";
}

expected<payload> device_stage::take_state() {
  auto all = read_state(state_path(), state_);
  state_folder_.reset();
  return all;
}

// The folder remains until the device has read it, and the stage has its next one.
expected<void> device_stage::submit_new_state(const payload& state, const state_name& which) {
  auto made = socket_folder::make();
  if (!made) return refuse(made.error());
  state_folder_.emplace(std::move(*made));
  if (auto ok = write_state(state_path(), state, which); !ok) return ok;
  submit({gpu::operations::load{state_path()}});
  return {};
}

expected<void> device_stage::add_inputs(gpu::operations::forward& step, std::uint64_t iteration,
                                        payload activation) {
  const bool first = setup_.name.stage == 0, last = setup_.name.stage + 1 == setup_.stages;
  if (!backend_.tokens || (!first && !last)) {
    if (!first) step.input = std::move(activation);
    return {};
  }
  auto read = backend_.tokens(iteration, step.microbatch);
  if (!read) return refuse(read.error());
  auto& [tokens, targets] = *read;
  step.input = first ? std::move(tokens) : std::move(activation);
  if (last) step.targets = std::move(targets);
  return {};
}

stage_gradients device_stage::take_gradients(gpu::own_and_tied gradients) const {
  stage_gradients g{std::move(gradients.own), std::move(gradients.tied)};
  g.own_bytes = g.own.bytes().size();
  g.tied_bytes = g.tied.bytes().size();
  return g;
}

bool device_stage::may_join_group() const {
  return sums_on_devices(setup_.how, setup_.backend);
}

double device_stage::expected_transfer_s(std::uint64_t bytes) const {
  constexpr double bytes_s = 125e6;  // 1 Gbit/s: a slow link, since a request too early costs more
  return static_cast<double>(bytes) / bytes_s;
}

}  // namespace troupe::actors
