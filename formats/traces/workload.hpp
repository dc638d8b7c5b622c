#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "formats/traces/trace.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"

// Large-model jobs for traces without models: docs/traces.md has the rules.

namespace troupe::formats {

/// Seconds per iteration of the job on that many GPUs of the type that its user requested
/// (`job.gpu_type`), whether or not it fits their memory. Infinity or NaN: this cluster has no plan
/// for the job, and the rule must choose a smaller one, if the row leaves one to choose.
using iteration_time = std::function<double(const job_spec& job, std::uint32_t gpus)>;

/// Jobs for the rows of a trace, in order: "frenzy", "crius", "crius-deadlines" or "titan". A
/// function of its arguments and the shipped models. Rows keep a model, batch or iterations that
/// they have. Fails for an unknown workload, an unknown model, and a row without a duration.
///
/// A row whose own model and batch have no plan, and one whose GPU type the cluster lacks, are jobs
/// all the same: the policy decides what it can run, by plans of its own. `regardless`: as
/// `seconds`, but finite whatever fits; none: such rows fail.
expected<std::vector<arrival>> assign(std::span<const trace_row> rows, std::string_view workload,
                                      std::uint64_t seed, const cluster& c,
                                      const iteration_time& seconds,
                                      const iteration_time& regardless = {},
                                      const std::filesystem::path& models = {});

}  // namespace troupe::formats
