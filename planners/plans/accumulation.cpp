#include "planners/plans/accumulation.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/cost/measured_memory.hpp"
#include "planners/model/declared_memory.hpp"

namespace troupe::planners {

namespace {

/// A replica's, of the fullest one.
std::uint32_t samples_of(const job_spec& job, std::uint32_t data) {
  return static_cast<std::uint32_t>((std::uint64_t{job.global_batch} + data - 1) / data);
}

}  // namespace

std::vector<std::uint32_t> divisors(std::uint32_t n) {
  std::vector<std::uint32_t> low, high;
  for (std::uint32_t i = 1; std::uint64_t{i} * i <= n; ++i) {
    if (n % i != 0) continue;
    low.push_back(i);
    if (i != n / i) high.push_back(n / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

bool may_accumulate(const job_spec& job) {
  return !facts_of(job).brings_layout && !fixes_micro_batch(job) && job.global_batch > 1;
}

std::uint32_t fewest_micro_batches(const cluster& c, const std::vector<gpu_index>& types,
                                   const job_spec& job, std::uint32_t data, std::uint32_t tensor,
                                   double max_bytes, double min_bytes) {
  for (const auto m : divisors(std::max(1U, samples_of(job, data)))) {
    const double bytes = program_bytes_on(c, types, job, data, tensor, m);
    if (bytes < max_bytes) return bytes > min_bytes ? m : 0;
  }
  return 0;
}

std::string fewer_at_once_text(const job_spec& job, std::uint32_t data, std::uint32_t gpus,
                               std::uint32_t microbatches) {
  const auto samples = samples_of(job, data);
  return fmt::format(
      "; its batch of {} is the reason: with {} of a replica's {} samples at a time "
      "(`microbatches: {}`) {} would do",
      job.global_batch, samples / std::max(1U, microbatches), samples, microbatches,
      gpus == 1 ? "1 GPU" : fmt::format("{} GPUs", gpus));
}

}  // namespace troupe::planners
