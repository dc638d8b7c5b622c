#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/lookup_row.hpp"

// Times of fine-tuning iterations by a table that was made before any job: T(a, s, m, l, amp, ckpt)
// of TITAN (Gao et al., SoCC 2022, section 4.1), one table for each GPU type and model. Fine-tuning
// keeps the model's structure, so that what was measured for one job holds for the next.

namespace troupe::planners {

/// The table's answer for a shape.
struct lookup_answer {
  double iteration_s = 0;
  double bytes_per_gpu = 0;
  const lookup_row* nearest = nullptr;  // the row that it is, or the next smaller one; its plan
  bool interpolated = false;            // the shape is between rows
  bool outside = false;                 // the shape is beyond the rows
};

/// Rows, and what lies between them. Linear in the batch and in the number of frozen layers, since
/// the seconds of an iteration are affine in both: work per sample and per trained layer, and a
/// part that is always there. GPUs, accumulation, precision and recomputation have only the values
/// of the rows. Beyond the rows the nearest one counts, its time in proportion to the batch.
class lookup_table {
 public:
  /// A row of an equal shape is replaced.
  void add(lookup_row row);

  /// Nothing: no row has this GPU type, model, number of GPUs, accumulation, precision and
  /// recomputation. The answer is valid until the next add().
  std::optional<lookup_answer> find(const std::string& gpu, const std::string& model,
                                    const tuning_shape& shape) const;

  /// The combinations that rows have of `accumulate`, `amp` and `recompute`, with the batches of
  /// all of them, ascending. batch, frozen_layers: 0.
  struct choices {
    std::vector<tuning_shape> ways;
    std::vector<std::uint32_t> batches;
  };
  choices choices_of(const std::string& gpu, const std::string& model, std::uint32_t gpus) const;

  /// Whether it has rows of the model on the GPU type.
  bool has(const std::string& gpu, const std::string& model) const;

 private:
  // GPU type, model, GPUs, accumulation, precision, recomputation.
  using key = std::tuple<std::string, std::string, std::uint32_t, std::uint32_t, bool, bool>;
  using by_batch = std::map<std::uint32_t, lookup_row>;
  using by_frozen = std::map<std::uint32_t, by_batch>;

  static key key_of(const std::string& gpu, const std::string& model, const tuning_shape& shape) {
    return {gpu, model, shape.gpus, shape.accumulate, shape.amp, shape.recompute};
  }
  static lookup_answer find_batch(const by_batch& rows, std::uint32_t batch);

  std::map<key, by_frozen> grids_;
};

/// A grid for rows from the cost model.
struct tuning_grid {
  std::vector<std::uint32_t> gpus;
  std::vector<std::uint32_t> batches = {64, 91, 128, 181, 256, 362, 512};  // the paper's: by sqrt 2
  std::vector<std::uint32_t> accumulate = {1, 2, 4, 8};
};

/// Rows of a job's model on one GPU type of the cluster by the cost model, or, where the type has a
/// profile of the model, by that (program_time.hpp), in single and in mixed
/// precision, with and without recomputation; nothing frozen. Shapes that no split of the GPUs can
/// hold have no row.
std::vector<lookup_row> rows_by_cost_model(const cluster& c, gpu_index gpu, const job_spec& like,
                                           const tuning_grid& grid);

}  // namespace troupe::planners
