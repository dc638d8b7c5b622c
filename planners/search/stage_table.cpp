#include "planners/search/stage_table.hpp"

#include <algorithm>

#include "messages/base/time.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/measured_memory.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/model/job_memory.hpp"

namespace troupe::planners {

namespace {

/// Takes the range's times per FLOP into the type's lower bounds. A range without work has no rate:
/// the head alone, for example, whose time a bound may count as 0.
void lower(cost_floor& floor, const range_costs& k, double work) {
  if (work <= 0) return;
  floor.forward_s = std::min(floor.forward_s, k.forward_s / work);
  floor.recompute_s = std::min(floor.recompute_s, k.recompute_s / work);
  floor.backward_s = std::min(floor.backward_s, k.backward_s / work);
}

}  // namespace

stage_table::stage_table(const cluster& c, const job_spec& job, std::uint32_t tensor,
                         std::uint32_t rows, const std::vector<gpus_of_stage>& types,
                         std::uint32_t pipelines)
    : chain_{job.model, divides_words(job)},
      tensor_{tensor},
      rows_{rows},
      pipelines_{pipelines},
      pieces_{pieces_of(job.model)},
      size_{chain_.size()},
      homogeneous_{job.model.operators.empty()},
      firsts_{homogeneous_ ? std::min(size_, 3U) : size_},
      middle_(types.size() * firsts_ * size_),
      last_(types.size() * size_),
      work_from_(size_ + 1),
      middle_floors_(types.size(), {never, never, never}),
      last_floors_(types.size(), {never, 0, never}),
      min_activation_bytes_{never} {
  for (std::uint32_t i = 0; i < size_; ++i)
    work_from_[i] = chain_.range(i, size_ - i).flops.for_one_of(1);
  for (std::size_t t = 0; t < types.size(); ++t) {
    for (std::uint32_t f = 0; f < size_; ++f) {
      auto& k = last_[t * size_ + f];
      k = ask(c, job, types[t], f, size_ - f, true);
      lower(last_floors_[t], k, work_from_[f]);
    }
    for (std::uint32_t f = 0; f < firsts_; ++f)
      for (std::uint32_t n = 1; f + n < size_; ++n) {
        auto& k = middle_[(t * firsts_ + f) * size_ + n];
        k = ask(c, job, types[t], f, n, false);
        lower(middle_floors_[t], k, work_from_[f] - work_from_[f + n]);
        min_activation_bytes_ = std::min(min_activation_bytes_, k.activation_bytes);
        max_activation_bytes_ = std::max(max_activation_bytes_, k.activation_bytes);
      }
    if (size_ == 1) middle_floors_[t] = last_floors_[t];
  }
  if (min_activation_bytes_ == never) min_activation_bytes_ = 0;
}

// The cost model wants a stage among all stages, but only uses whether there are others before and
// behind it: one stand-in beside the stage is enough.
range_costs stage_table::ask(const cluster& c, const job_spec& job, const gpus_of_stage& t,
                             std::uint32_t first, std::uint32_t count, bool last) const {
  const auto part = part_of_stage(chain_, job.model, first, count, tensor_, last);
  const bool alone = last && first == 0;
  std::vector<stage_part> parts(alone ? 1 : 2);
  const auto at = static_cast<std::uint32_t>(last && !alone ? 1 : 0);
  parts[at] = part;
  auto x =
      costs_of_stage(job, device_of(job, c.gpus[t.gpu]), parts, at, rows_, t.inside, pipelines_);
  slow_down(x, t.speed);
  const auto bytes = [&](std::uint32_t held) {
    return stage_bytes_on(c.gpus[t.gpu], job, part,
                          {rows_, held, never, job.pipeline.recompute, pipelines_},
                          c.settings.memory_headroom) +
           guest_bytes(job);
  };
  // A stage that cuts glued layers apart has no memory that is enough.
  const bool cuts_glue =
      is_glued(job.model, first) || (!last && is_glued(job.model, first + count));
  const double without = cuts_glue ? 0 : bytes(0);
  return {x.forward_s,
          x.recompute_s,
          x.backward_s,
          x.update_s,
          x.gradients_s,
          static_cast<double>(x.gradient_bytes),
          static_cast<double>(x.tied_bytes),
          static_cast<double>(x.activation_bytes),
          cuts_glue ? never : without,
          cuts_glue ? 0 : bytes(1) - without};
}

}  // namespace troupe::planners
