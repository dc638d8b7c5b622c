#include "cli/options/assumed.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "messages/domain/cluster.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/stated_length.hpp"
#include "planners/model/declared_memory.hpp"

namespace troupe::cli {

namespace {

/// "1 to 4 GPUs"
std::string elastic_gpus(const elastic& e, std::uint32_t gpus) {
  if (e.same_gpus) return fmt::format("{} GPU{}", gpus, gpus == 1 ? "" : "s");
  if (e.max_gpus == 0) return fmt::format("{} or more GPUs", e.min_gpus);
  return fmt::format("{} to {} GPUs", e.min_gpus, e.max_gpus);
}

/// "model or memory_gb": its numbers of GPUs are given.
std::string missing_of_elastic(std::string_view missing) {
  return missing.starts_with("--") ? "--model or --memory" : "model or memory_gb";
}

}  // namespace

std::string assumption_text(const job_spec& job, std::string_view missing) {
  if (!job.assumed.model || job.request.exact || (job.memory && job.memory->gb > 0)) return {};
  const double bytes =
      planners::program_bytes(job, job.request.gpus, 1, cluster_settings{}.memory_headroom);
  // An elastic program has a number of GPUs without being planned for exactly that.
  const auto on = job.program.elastic ? elastic_gpus(*job.program.elastic, job.request.gpus)
                                      : std::string{"1 GPU"};
  return fmt::format("no {}: planned as {}, batch {}, {:.2f} GB, on {}",
                     job.program.elastic ? missing_of_elastic(missing) : std::string{missing},
                     job.model.name, job.global_batch, bytes / bytes_per_gb, on);
}

std::vector<std::string> doubts_of(const job_spec& job) {
  std::vector<std::string> all;
  std::error_code error;
  if (job.train && !is_simulated(job.train->device))
    for (const auto& [key, file] :
         {std::pair{"data", &job.train->data}, {"vocabulary", &job.train->vocabulary}})
      if (!file->empty() && !std::filesystem::exists(*file, error))
        all.push_back(fmt::format(
            "{}: {} is not on this machine; the nodes need it under this name", key, *file));
  if (!job.program.elastic || job.program.elastic->same_gpus || job.program.elastic->any_layout)
    return all;
  const auto widest = job.limits.max_gpus.value_or(0);
  if (job.global_batch < (widest > 0 ? widest : 2))
    all.push_back(fmt::format(
        "elastic: {}, but an iteration has {} sample{} (global_batch{}), and every GPU needs one",
        elastic_gpus(*job.program.elastic, job.request.gpus), job.global_batch,
        job.global_batch == 1 ? "" : "s", stated_batch(job) ? "" : " is not given"));
  return all;
}

}  // namespace troupe::cli
