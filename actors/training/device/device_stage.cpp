#include "actors/training/device/device_stage.hpp"

#include <utility>

#include "actors/training/device/stage_backend.hpp"
#include "messages/domain/device_kind.hpp"

namespace troupe::actors {

bool device_stage::start(std::uint64_t iteration) {
  if (iteration == 0) return false;
  submit({.what = gpu::operation::kind::load,
          .path = checkpoint_path(setup_.how.checkpoint, iteration)});
  return true;
}

// The actor is named only while an operation is under way: a reference that the stage's own state
// held would keep the actor alive for ever.
void device_stage::submit(gpu::operation o) {
  if (!backend_.device) return;
  backend_.device->submit(std::move(o), [me = stage_actor{self_}](expected<gpu::outcome> r) {
    caf::anon_send(me, device_done{std::move(r)});
  });
}

expected<void> device_stage::add_inputs(gpu::operation& forward, std::uint64_t iteration,
                                        payload activation) {
  const bool first = setup_.name.stage == 0, last = setup_.name.stage + 1 == setup_.stages;
  if (!backend_.tokens || (!first && !last)) {
    if (!first) forward.in.push_back(std::move(activation));
    return {};
  }
  auto read = backend_.tokens(iteration, forward.microbatch);
  if (!read) return refuse(read.error());
  auto& [tokens, targets] = *read;
  forward.in.push_back(first ? std::move(tokens) : std::move(activation));
  if (last) forward.in.push_back(std::move(targets));
  return {};
}

stage_gradients device_stage::take_gradients(gpu::outcome& o) const {
  stage_gradients g{std::move(o.out[0]), std::move(o.out[1])};
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
