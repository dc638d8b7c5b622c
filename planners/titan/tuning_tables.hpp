#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planners/titan/time_estimator.hpp"

namespace troupe::planners {

/// The options of models on GPU types by number of GPUs: from measured rows where there are any,
/// else from the cost model. They cost thousands of estimates, so that they are remembered for one
/// cluster; no answer depends on what was asked before. For one thread: policies have one for plans
/// and one for decisions, which the estimator and the scheduler ask for.
class tuning_tables {
 public:
  /// `measured` may be null.
  explicit tuning_tables(std::shared_ptr<const lookup_table> measured)
      : measured_{std::move(measured)} {}

  /// By number of GPUs: titan_counts() of the type's largest node, up to as many as it has. Counts
  /// that cannot hold the model are left out.
  using by_gpus = std::map<std::uint32_t, std::vector<tuning_option>>;

  /// The options of the job's model, with `batch` alone if that is given.
  std::shared_ptr<const by_gpus> options_of(const cluster& c, gpu_index gpu, const job_spec& job,
                                            std::optional<std::uint32_t> batch) const;

 private:
  struct question {
    gpu_index gpu = 0;
    troupe::model model;
    std::optional<std::uint32_t> batch;

    bool operator==(const question&) const = default;
  };
  struct answer {
    question about;
    std::shared_ptr<const by_gpus> options;
  };

  std::shared_ptr<const lookup_table> measured_;
  mutable std::optional<cluster> cluster_;  // that the answers are for
  mutable std::vector<answer> answers_;     // few: models are
};

}  // namespace troupe::planners
