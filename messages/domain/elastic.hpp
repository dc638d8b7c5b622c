#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"

namespace troupe {

/// The speed of a program on GPUs of one type, given by its user or measured.
struct program_rate {
  std::string gpu;         // the type's name
  std::uint32_t gpus = 0;  // how many of it
  /// Its data-parallel ranks; 0: as many as GPUs.
  std::uint32_t data_parallel = 0;
  double samples_per_s = 0;

  TROUPE_FIELDS(program_rate, gpu, gpus, data_parallel, samples_per_s);
};

/// A program that saves when it is asked to stop, and goes on from there on other GPUs: policies
/// may stop, resize and move it within these limits.
struct elastic {
  bool same_gpus = false;          // every attempt has as many GPUs as the first
  std::uint32_t min_gpus = 1;      // otherwise at least these,
  std::uint32_t max_gpus = 0;      // and at most these; 0: no bound
  bool same_types = false;         // every attempt runs on the first one's type of GPU
  std::vector<std::string> types;  // otherwise on one of these; empty: any
  /// Tensor and pipeline parallelism may change between attempts, not only data parallelism.
  bool any_layout = false;
  double checkpoint_every_s = 0;  // it saves by itself so often; 0: the cluster's checkpoint_s
  std::uint32_t retries = 3;      // consecutive failures without a newly saved iteration
  // Costs as known to its user, until they are measured.
  std::optional<double> start_s;  // from its GPUs to its first iteration; none: restart_s
  std::optional<double> save_s;   // from the stop request to its end; none: 0
  std::vector<program_rate> rates;

  TROUPE_FIELDS(elastic, same_gpus, min_gpus, max_gpus, same_types, types, any_layout,
                checkpoint_every_s, retries, start_s, save_s, rates);
};

/// Costs of an elastic program, as measured in its attempts.
struct program_costs {
  static constexpr std::size_t max_kept = 5;  // of each kind, oldest first
  std::vector<double> starts_s;     // from its GPUs to its first iteration, without that iteration
  std::vector<double> saves_s;      // from the stop request to its end
  std::vector<program_rate> rates;  // the newest for each type, number and data parallelism

  TROUPE_FIELDS(program_costs, starts_s, saves_s, rates);
};

/// Facts of an elastic program's ended attempts.
struct elastic_record {
  program_costs costs;
  // The first attempt's shape; 0 GPUs: there was none.
  std::uint32_t first_gpus = 0;
  std::uint32_t first_tensor_parallel = 1, first_pipeline_parallel = 1;
  std::string first_type;             // GPU type, by name
  std::uint32_t stops = 0;            // attempts that were stopped, for any reason
  std::uint64_t lost_iterations = 0;  // completed, but not saved by the attempt that did them
  double stopped_at_s = 0;            // when the last stop was requested; 0: there was none
  double pause_s = 0;                 // from the last stop to the next attempt's first iteration

  TROUPE_FIELDS(elastic_record, costs, first_gpus, first_tensor_parallel, first_pipeline_parallel,
                first_type, stops, lost_iterations, stopped_at_s, pause_s);
};

/// The median of the measured times; none: nothing was measured.
inline std::optional<double> median_of(std::vector<double> times_s) {
  if (times_s.empty()) return {};
  const auto middle = times_s.begin() + static_cast<std::ptrdiff_t>(times_s.size() / 2);
  std::nth_element(times_s.begin(), middle, times_s.end());
  return *middle;
}

}  // namespace troupe
