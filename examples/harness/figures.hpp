#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "formats/traces/workload.hpp"
#include "harness/must.hpp"
#include "planners/plans/trace_duration.hpp"

// Shared by the programs that repeat a paper's figures: shipped files by name, and the table of the
// paper's figures beside ours.

namespace troupe {

inline std::shared_ptr<const cluster> cluster_named(const std::string& name) {
  const auto file = formats::configs_directory() / "clusters" / (name + ".yaml");
  return std::make_shared<const cluster>(must(formats::load_cluster(file)));
}

inline model model_named(const std::string& name) {
  return must(formats::load_model(formats::configs_directory() / "models" / (name + ".yaml")));
}

inline std::vector<formats::trace_row> trace_named(const std::string& name) {
  return must(formats::load_trace(formats::configs_directory() / "traces" / (name + ".csv")));
}

/// A trace's jobs with models that the rule assigns to them (formats/traces/workload.hpp).
inline std::vector<arrival> workload_of(const cluster& c,
                                        const std::vector<formats::trace_row>& rows,
                                        const std::string& rule, std::uint64_t seed) {
  return must(formats::assign(rows, rule, seed, c, [&](const job_spec& job, std::uint32_t gpus) {
    return planners::reference_iteration_s(c, job, gpus);
  }));
}

/// A figure of the paper, ours, and why they differ.
struct comparison {
  std::string what, paper, here, why;
};
inline std::vector<comparison> compared;

/// At the end; columns of these widths.
inline void print_compared(int what, int paper, int here) {
  fmt::print("\n{:{}}{:{}}{:{}}{}\n", "figure", what, "paper", paper, "here", here,
             "why different");
  for (const auto& x : compared)
    fmt::print("{:{}}{:{}}{:{}}{}\n", x.what, what, x.paper, paper, x.here, here, x.why);
}

}  // namespace troupe
