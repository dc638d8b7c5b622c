#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "planners/titan/merge_candidates.hpp"
#include "planners/titan/switch_time.hpp"
#include "planners/titan/time_estimator.hpp"
#include "planners/titan/titan_problem.hpp"

namespace troupe::planners {

struct titan_options {
  std::string name = "titan";
  bool merges = true;    // section 4.2: unions of jobs
  bool switches = true;  // section 4.3: jobs that follow others on their GPUs
  /// A waiting job's weight grows by 1 in this time, so that long jobs do not starve: (1) values
  /// them least. 0: the paper's, every weight is 1.
  double aging_s = 4 * 3600;
  /// Seconds before the first iteration; none: a naive switch, with the cluster's restart_s as
  /// set-up.
  std::optional<double> start_s;
  /// GPUs of a job that ends in less than this multiple of a naive switch are given away already.
  double lead = 2;
  /// GPUs of a job, or of a union, are at most this multiple of the number that each of its users
  /// asked for; 0: no limit. The paper has none.
  double max_request_factor = 0;
  tuning_rules rules;
  merge_rules merging;
  titan_limits limits;
  switch_rates rates;  // setup_s is the cluster's restart_s
  /// Measured rows; of models that it has none of, the cost model's count. Null: none.
  std::shared_ptr<const lookup_table> measured;
  /// Solves the program; another one may measure what it does.
  std::function<titan_answer(const titan_problem&, const titan_limits&)> solve = solve_titan;
};

}  // namespace troupe::planners
