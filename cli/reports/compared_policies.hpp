#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output/output.hpp"
#include "messages/domain/replayed_times.hpp"
#include "studies/solve_log.hpp"
#include "studies/workload_simulation.hpp"

namespace troupe::cli {

/// The workload that replays a trace without models of its own.
inline constexpr std::string_view as_is = "as-is";
/// The workload of job files.
inline constexpr std::string_view job_files = "job files";

/// A workload, replayed under several policies.
struct comparison {
  cluster on;
  std::vector<arrival> workload;
  std::string workload_name;
  std::uint64_t seed = 1;
  std::vector<studies::policy_result> results;
  /// Times of the jobs; null: the cost model's.
  std::shared_ptr<const replayed_times> times{};
  std::size_t invented = 0;  // jobs whose model is the rule's
  /// Per result: why jobs failed.
  std::vector<std::map<job_id, std::string>> failures{};
  std::string parallelism{};          // as in as_simulated()
  std::vector<bool> has_pipelines{};  // per result: its plans may have them
  /// By name, for policies that plan no pipelines of their own: the results with them. Empty: not
  /// asked.
  std::map<std::string, studies::policy_result> with_pipelines{};
  /// Gets the programs that the policies solve (studies::noted_in); null: nothing does.
  std::shared_ptr<studies::solve_log> log{};
  std::vector<studies::solve_log> solved{};  // per result
  /// The policy whose jobs those of the others are compared with; empty: none.
  std::string against{};
};

}  // namespace troupe::cli
