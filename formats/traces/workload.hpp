#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "formats/traces/trace.hpp"
#include "messages/cluster.hpp"
#include "messages/job.hpp"

// Large-model work for traces that name none: the rules are in docs/traces.md.

namespace troupe::formats {

/// Seconds that one iteration of the job takes on so many GPUs of the type that its user has in
/// mind
/// (`job.gpu_type`), whether or not it would fit their memory. Infinity or NaN: this cluster has no
/// plan for the job at all, and the rule must choose a smaller one.
using iteration_time = std::function<double(const job_spec& job, std::uint32_t gpus)>;

/// Jobs for the rows of a trace, in its order: "frenzy", "crius" or "titan". A function of its
/// arguments and the shipped models alone. A row that names a model, a batch or iterations keeps
/// them. Refuses: an unknown workload, a model that is not there, a row that nothing small enough
/// serves.
expected<std::vector<arrival>> assign(std::span<const trace_row> rows, std::string_view workload,
                                      std::uint64_t seed, const cluster& c,
                                      const iteration_time& seconds,
                                      const std::filesystem::path& models = {});

}  // namespace troupe::formats
