#include "planners/cost/batch_split.hpp"

#include <algorithm>
#include <cmath>

#include "messages/base/units.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/measured_memory.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/model/engine_memory.hpp"
#include "planners/model/job_memory.hpp"

namespace troupe::planners {

pipeline_costs costs_in_slots(const job_spec& job) {
  const auto& s = *job.slots;
  return {s.forward, job.pipeline.recompute ? s.recompute : 0, s.backward, s.lan, s.wan, 0};
}

// More micro-batches mean shorter bubbles but smaller products; four per stage is GPipe's rule,
// which Crius (section 5.1) and this project follow where the job leaves it open.
batch_split split_batch(const job_spec& job, std::uint32_t stages, std::uint32_t pipelines) {
  if (job.slots) return {std::max(job.pipeline.microbatches, 1u), 1};
  // Pipelines that divide the sequences have the same samples.
  const auto context = context_parallel_of(job.pipeline);
  if (pipelines == 0 || pipelines % context != 0) return {};
  if (job.global_batch % (pipelines / context) != 0) return {};
  const auto each = job.global_batch / (pipelines / context);
  if (const auto rows = job.pipeline.rows; rows > 0) {
    if (each % rows != 0) return {};
    return {each / rows, rows};
  }
  auto m = job.pipeline.microbatches ? job.pipeline.microbatches : job.microbatches.value_or(0);
  if (m == 0)
    for (m = std::min(each, 4 * stages); each % m != 0;) --m;
  if (each % m != 0) return {};
  return {m, each / m};
}

std::optional<std::uint32_t> flight_limit(const job_spec& job, std::uint32_t stages) {
  if (job.pipeline.max_in_flight) return job.pipeline.max_in_flight;
  const bool open = !job.train || job.train->schedule.empty() || job.train->schedule == "best";
  if (!open || job.slots || recomputation_of(job) != recomputation::none) return {};
  return std::max(1U, stages);
}

bool keeps_flight_limit(const job_spec& job, std::uint32_t microbatches, std::uint32_t stages) {
  const auto limit = flight_limit(job, stages);
  if (!limit || !job.train) return true;
  if (job.train->schedule == "gpipe") return microbatches <= *limit;
  return job.train->schedule != "megatron" || std::min(microbatches, stages) <= *limit;
}

std::uint32_t in_flight(const job_spec& job, const batch_split& split, std::uint32_t behind,
                        std::uint32_t stages) {
  auto held = split.microbatches;
  if (const auto limit = flight_limit(job, stages > 0 ? stages : behind + 1))
    held = std::min(held, *limit);
  if (job.train && job.train->schedule == "megatron") held = std::min(held, behind + 1);
  return held;
}

stage_load load_of(const job_spec& job, const batch_split& split, std::uint32_t behind,
                   double max_bytes, std::uint32_t stages) {
  stage_load load{split.rows, in_flight(job, split, behind, stages), max_bytes,
                  job.pipeline.recompute};
  if (!facts_of(job).on_engine && !job.memory) return load;
  if (split.pipelines > 0)
    load.pipelines = split.pipelines;
  else if (const auto samples = std::uint64_t{split.microbatches} * split.rows; samples > 0)
    load.pipelines =
        static_cast<std::uint32_t>(job.global_batch / samples) * context_parallel_of(job.pipeline);
  // The last stage goes back as soon as it has gone forward, except under gpipe.
  if (facts_of(job).on_engine && behind == 0 && job.train->schedule != "gpipe") load.held = 1;
  return load;
}

double guest_bytes(const job_spec& job) {
  return job.pipeline.bubbles ? job.pipeline.bubbles->memory_gb * bytes_per_gb : 0;
}

std::vector<double> bytes_by_stage(const job_spec& job, const batch_split& split,
                                   const std::vector<stage_part>& parts, double headroom,
                                   const std::vector<const gpu_type*>& gpus) {
  std::vector<double> bytes;
  constexpr double any = std::numeric_limits<double>::infinity();
  const auto stages = static_cast<std::uint32_t>(parts.size());
  auto behind = stages;
  for (const auto& p : parts) {
    const auto load = load_of(job, split, --behind, any, stages);
    const auto* gpu = gpus.empty() ? nullptr : gpus[std::min(bytes.size(), gpus.size() - 1)];
    bytes.push_back(
        (gpu ? stage_bytes_on(*gpu, job, p, load, headroom) : stage_bytes(job, p, load, headroom)) +
        guest_bytes(job));
  }
  return bytes;
}

std::uint32_t connections_between(const cluster& c, std::uint32_t a, std::uint32_t b,
                                  std::uint32_t wished) {
  const auto* w = wan_between(c, a, b);
  if (wished > 0 || !w || w->connection_gbps <= 0) return std::max(wished, 1u);
  return static_cast<std::uint32_t>(std::max(1.0, std::ceil(w->node_gbps / w->connection_gbps)));
}

link link_between(const cluster& c, std::uint32_t a, std::uint32_t b, std::uint32_t wished) {
  const cost_constants k;
  const auto* w = wan_between(c, a, b);
  if (!w) return {"wan", k.wan_gbps, k.wan_latency_us};
  const double max =
      w->connection_gbps > 0 ? connections_between(c, a, b, wished) * w->connection_gbps : 1e300;
  link all{"wan", std::min(w->node_gbps, max), w->rtt_ms * 1e3 / 2};
  if (w->rates) all.rates = limited(*w->rates, max);
  all.flow_rates = w->flow_rates;
  return all;
}

double communication_to_compute(const pipeline_costs& costs) {
  return costs.forward > 0 ? costs.wan / costs.forward : 0;
}

// Rule 1 of ATLAS (section 4.4). In a cell of fewer than C pipelines a transfer takes longer than a
// forward even over the bandwidth of the whole cell, which leaves bubbles; so a remainder smaller
// than that is avoided by making all cells slightly larger. It ends: a cell of all pipelines has no
// remainder.
std::uint32_t cell_of(const pipeline_costs& costs, std::uint32_t pipelines) {
  const double c = std::ceil(communication_to_compute(costs) - 1e-9);
  const auto min = static_cast<std::uint32_t>(std::clamp(c, 1.0, static_cast<double>(pipelines)));
  auto cell = min;
  while (pipelines % cell > 0 && pipelines % cell < min) ++cell;
  return cell;
}

}  // namespace troupe::planners
