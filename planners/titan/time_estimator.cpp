#include "planners/titan/time_estimator.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::planners {

// In units of the largest, so that powers of large numbers stay finite.
double merged_samples(std::span<const double> samples, const tuning_rules& rules) {
  if (samples.empty()) return 0;
  const double largest = *std::ranges::max_element(samples);
  if (!(largest > 0)) return 0;
  double sum = 0;
  for (const double s : samples) sum += std::pow(s / largest, rules.merge_exponent);
  return largest * std::pow(sum, 1 / rules.merge_exponent);
}

// The smallest batch is allowed on any data set: a job must have a configuration.
bool allows_batch(const tuning_job& job, std::uint32_t batch, const tuning_rules& rules) {
  if (job.batch) return batch == *job.batch;
  if (batch < rules.min_batch) return false;
  return batch == rules.min_batch || batch <= job.rows / rules.updates_an_epoch;
}

std::vector<tuning_option> options_by_batch(const lookup_table& table, const std::string& gpu,
                                            const std::string& model, std::uint32_t gpus,
                                            double max_bytes, std::optional<std::uint32_t> batch) {
  const auto [ways, batches] = table.choices_of(gpu, model, gpus);
  std::vector<tuning_option> out;
  for (const auto m : batch ? std::vector{*batch} : batches) {
    std::optional<tuning_option> best;
    for (auto shape : ways) {
      shape.batch = m;
      const auto row = table.find(gpu, model, shape);
      if (!row || !(row->bytes_per_gpu < max_bytes)) continue;
      if (best && !(row->iteration_s < best->iteration_s)) continue;
      best = {shape,        row->iteration_s,  row->bytes_per_gpu,
              row->nearest, row->interpolated, row->outside};
    }
    if (best) out.push_back(*best);
  }
  return out;
}

std::optional<tuning_choice> best_configuration(std::span<const tuning_option> options,
                                                const tuning_job& job, double start_s,
                                                const tuning_rules& rules) {
  std::optional<tuning_choice> best;
  for (const auto& o : options) {
    if (!allows_batch(job, o.shape.batch, rules)) continue;
    const double iterations = std::ceil(job.samples / o.shape.batch);
    const double duration_s = start_s + iterations * o.iteration_s;
    if (!best || duration_s < best->duration_s) best = {&o, iterations, duration_s};
  }
  return best;
}

}  // namespace troupe::planners
