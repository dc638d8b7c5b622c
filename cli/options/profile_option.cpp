#include "cli/options/profile_option.hpp"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "formats/load/load.hpp"
#include "planners/devices/profile.hpp"

namespace troupe::cli {

// Both kinds of files are accepted by one option: `troupe train --json` writes JSON, `troupe
// profile` YAML.
bool is_document(const std::string& file) {
  std::ifstream in{file};
  char first = 0;
  return in >> first && first == '{';
}

expected<device_profile> load_profile_for(const std::string& file, const job_spec& job) {
  auto p = formats::load_profile(file);
  if (!p) return p;
  if (const auto known = planners::covers(*p, job.model); !known)
    return refuse(known.error().code, fmt::format("{}: {}", file, known.error().text));
  return p;
}

expected<void> use_profile(const std::string& file, const job_spec& job, cluster& c) {
  if (file.empty()) return {};
  const auto p = load_profile_for(file, job);
  if (!p) return refuse(p.error());
  // The user vouches that all GPU types behave as the measured device.
  for (auto& gpu : c.gpus) gpu.profile = *p;
  return {};
}

std::string source_of(const cluster& c, const job_spec& job, const plan& how, node_index first) {
  auto rows = std::max(job.global_batch / std::max(how.data_parallel, 1u), 1u);
  if (how.rows > 0)
    rows = how.rows;
  else if (job.microbatches)
    rows = std::max(rows / *job.microbatches, 1u);
  return planners::source_of(job, c.gpu_of(first), rows);
}

}  // namespace troupe::cli
