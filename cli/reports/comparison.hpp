#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options/policy_option.hpp"
#include "cli/output/output.hpp"
#include "cli/reports/compared_policies.hpp"
#include "formats/traces/throughputs.hpp"
#include "formats/traces/trace.hpp"
#include "messages/domain/replayed_times.hpp"
#include "studies/workload_simulation.hpp"

namespace troupe::cli {

/// Simulates it under each policy, with a progress line on terminals.
expected<void> replay(comparison& c, const policy_list& policies, const fault_plan& faults);
/// For comparisons in which some policies plan pipelines, and others do not: simulates it under the
/// others with them, so that all have the same plan space.
expected<void> replay_with_pipelines(comparison& c, const policy_list& policies,
                                     const fault_plan& faults);

json document_of(const comparison& c);
/// One result's part of it.
json row_of(const comparison& c, std::size_t policy);
/// The table, and below it the plan spaces, and why jobs failed.
std::string table_of(const comparison& c);
/// Each policy's plan space, and its figures when all have the same one, of a document's rows.
/// Empty where plans are given, or if there is only one policy.
std::string plan_spaces_table(const std::vector<json>& rows);
/// "20 jobs on lab, simulated in virtual time, ...": what was replayed, and how.
std::string title_of(const comparison& c);

/// Writes result.json, usage.html, and for each policy jobs-POLICY.csv and usage-POLICY.csv.
expected<void> save(const comparison& c, const std::string& directory);

/// A policy as `simulate` runs it. `parallelism`: of simulated work, "own",
/// "adaptive", or empty for the default of the workload's rule. Policies that choose any
/// parallelism themselves keep theirs.
std::shared_ptr<const planners::policy> as_simulated(std::shared_ptr<const planners::policy> p,
                                                     std::string_view workload,
                                                     std::string_view parallelism);

/// Whether a policy's plans of simulated work may have pipelines, as as_simulated() makes it; else
/// they are data and tensor parallel alone.
bool plans_pipelines(const planners::policy& p, std::string_view workload,
                     std::string_view parallelism);

/// The workload of a trace whose user names none: as-is if its rows have durations and nothing of a
/// model, else the rule of Frenzy.
std::string usual_workload(std::span<const formats::trace_row> rows);

/// The rows of a trace as a workload of the cluster, by the named rule.
expected<std::vector<arrival>> workload_of(std::span<const formats::trace_row> rows,
                                           std::string_view workload, std::uint64_t seed,
                                           const cluster& c);
/// The same of a shipped or a user's trace.
expected<std::vector<arrival>> load_workload(const std::string& trace, const std::string& workload,
                                             std::uint64_t seed, const cluster& c);

/// A comparison with its workload, and nothing simulated yet: by the rule, as it is, or (`speeds`
/// is not null) at measured speeds.
expected<comparison> comparison_of(std::span<const formats::trace_row> rows,
                                   const std::string& workload, const formats::throughputs* speeds,
                                   std::uint64_t seed, const cluster& c);

/// Job files as arrivals, in the order of their times: "FILE", or "FILE@SECONDS" after the begin.
/// Refuses jobs that are more than simulated work: trainings, servers and studies of stages.
expected<std::vector<arrival>> load_arrivals(std::span<const std::string> files);
/// A comparison of these jobs in the plans that their policies make.
comparison of_job_files(std::vector<arrival> jobs, std::uint64_t seed, const cluster& c);

}  // namespace troupe::cli
