#include "actors/training/stage/evaluation_share.hpp"

#include "gpu/examples/tuning_rows.hpp"

namespace troupe::actors {

// Arguments that are not of a model folder's training end the stage when its device is made.
evaluation_share evaluations_of(const stage_setup& s) {
  if (!s.how.program) return {};
  const auto read = gpu::tuning_of(*s.how.program);
  if (!read || !*read || (*read)->held_out_rows == 0 || s.rows == 0 || s.pipelines == 0) return {};
  const auto& u = **read;
  const auto all = (u.held_out_rows + s.rows - 1) / s.rows;
  return {true, u.evaluate_every,
          static_cast<std::uint32_t>((all + s.pipelines - 1 - s.name.pipeline) / s.pipelines)};
}

}  // namespace troupe::actors
