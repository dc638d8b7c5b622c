#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planners/cost/lookup_table.hpp"

// TITAN's time estimator (Gao et al., SoCC 2022, section 4.1): from a data set's size to a number
// of samples and a range of batches, and from the lookup table to the configuration that ends
// first. The paper gives neither rule; these are ours (docs/planners/titan.md, "Data and samples").

namespace troupe::planners {

/// The constants of the rules.
struct tuning_rules {
  double epochs = 10;  // over the data, where the job gives no number of samples
  std::uint32_t min_batch = 64;
  double updates_an_epoch = 50;  // at least; the largest batch is rows / this
  /// A union of data sets needs (sum S_i^q)^(1/q) samples. q makes Table 2's first case exact: two
  /// jobs of 20 min need 25 min, 2^(1/q) = 1.25. Between the sum (q = 1: nothing is shared) and the
  /// largest (q infinite: all is).
  double merge_exponent = 3.1062837;
};

/// A job as the estimator sees it: its data.
struct tuning_job {
  double samples = 0;                    // S: over all epochs
  double rows = 0;                       // D: of the data set
  std::optional<std::uint32_t> batch{};  // its own, if it has one
};

/// Samples that a union of these jobs needs.
double merged_samples(std::span<const double> samples, const tuning_rules& rules = {});

/// Whether a job on this data may be trained with this batch.
bool allows_batch(const tuning_job& job, std::uint32_t batch, const tuning_rules& rules = {});

/// The fastest way to train with one batch on a number of GPUs.
struct tuning_option {
  tuning_shape shape;
  double iteration_s = 0;
  double bytes_per_gpu = 0;
  const lookup_row* row = nullptr;  // of the table: its plan, and where it is from
  bool interpolated = false, outside = false;
};

/// One option for each batch of the table, or for `batch` alone, ascending: of the ways whose
/// memory is below `max_bytes`; ties take the smaller shape. Batches without any have none. Valid
/// as long as the table is not changed.
std::vector<tuning_option> options_by_batch(const lookup_table& table, const std::string& gpu,
                                            const std::string& model, std::uint32_t gpus,
                                            double max_bytes,
                                            std::optional<std::uint32_t> batch = {});

/// The chosen configuration of a job on a number of GPUs.
struct tuning_choice {
  const tuning_option* option = nullptr;
  double iterations = 0;  // N = ceil(S / m)
  double duration_s = 0;  // start + N times iteration_s; 1 over it is T_ia
};

/// The option that ends first; ties take the smaller batch. `start_s`: seconds before the first
/// iteration. Nothing: there is no option that the job's data allow.
std::optional<tuning_choice> best_configuration(std::span<const tuning_option> options,
                                                const tuning_job& job, double start_s,
                                                const tuning_rules& rules = {});

}  // namespace troupe::planners
