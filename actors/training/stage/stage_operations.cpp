#include "actors/training/stage/stage_operations.hpp"

#include <cstddef>
#include <span>

namespace troupe::actors {

using operation_kind = gpu::operation::kind;

gpu::operation operation_of(const stage_step& s) {
  return {.what = s.what == stage_step::kind::forward     ? operation_kind::forward
                  : s.what == stage_step::kind::recompute ? operation_kind::recompute
                                                          : operation_kind::backward,
          .microbatch = s.microbatch};
}

// All peers make one, since each has to find out whether its own device can.
gpu::operation make_group_operation(const stage_setup& s) {
  return {
      .what = operation_kind::make_communicator_id, .rank = s.name.pipeline, .size = s.pipelines};
}

gpu::operation join_communicator_operation(const stage_setup& s,
                                           const std::vector<std::uint8_t>& id) {
  return {.what = operation_kind::join_communicator,
          .in = {payload{id}},
          .rank = s.name.pipeline,
          .size = s.pipelines};
}

// The id is opaque here: only devices of the kind that has made it can read it.
std::vector<std::uint8_t> communicator_id_of(const gpu::outcome& o) {
  std::vector<std::uint8_t> id;
  const auto bytes = o.out.empty() ? std::span<const std::byte>{} : o.out[0].bytes();
  for (const auto b : bytes) id.push_back(std::to_integer<std::uint8_t>(b));
  return id;
}

// A device that has summed gradients itself still gets the sum of a tied embedding from the hosts.
gpu::operation update_operation(std::pair<payload, payload> sums, double scale) {
  gpu::operation o{.what = operation_kind::update, .scale = scale};
  auto& [own, tied] = sums;
  if (!own.bytes().empty() || !tied.bytes().empty()) o.in = {std::move(own), std::move(tied)};
  return o;
}

gpu::operation norms_operation(std::pair<payload, payload> sums) {
  auto o = update_operation(std::move(sums), 1);
  o.what = operation_kind::norms;
  return o;
}

// The sums are in the device since it computed their norms.
gpu::operation clipped_update_operation(double squared_norm, double scale) {
  gpu::operation o{.what = operation_kind::update, .scale = scale};
  o.squared_norm = squared_norm;
  return o;
}

}  // namespace troupe::actors
