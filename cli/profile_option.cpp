#include "cli/profile_option.hpp"

#include <algorithm>
#include <fstream>

#include "configs/load.hpp"
#include "planners/pipeline_costs.hpp"
#include "planners/pipeline_placement.hpp"
#include "planners/profile.hpp"

namespace troupe::cli {

bool is_document(const std::string& file) {
  std::ifstream in{file};
  char first = 0;
  return in >> first && first == '{';
}

expected<device_profile> load_profile_for(const std::string& file, const job_spec& job) {
  auto p = configs::load_profile(file);
  if (!p) return p;
  if (const auto known = planners::sizes_of(*p, job.model); !known)
    return refuse(known.error().code, fmt::format("{}: {}", file, known.error().text));
  return p;
}

expected<void> use_profile(const std::string& file, const job_spec& job, cluster& c) {
  if (file.empty()) return {};
  const auto p = load_profile_for(file, job);
  if (!p) return tl::unexpected<reason>(p.error());
  for (auto& gpu : c.gpus) gpu.profile = *p;
  return {};
}

std::string source_of(const cluster& c, const job_spec& job, std::uint32_t stages,
                      std::uint32_t pipelines, node_index first) {
  auto rows = std::max(job.global_batch / std::max(pipelines, 1u), 1u);
  if (planners::is_pipeline_job(job))
    rows = std::max(planners::split_batch(job, stages, pipelines).rows, 1u);
  else if (job.microbatches)
    rows = std::max(rows / *job.microbatches, 1u);
  return planners::source_of(job, c.gpu_of(first), rows);
}

}  // namespace troupe::cli
