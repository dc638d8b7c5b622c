#include "cli/common/assumed.hpp"

#include <fmt/format.h>

#include "messages/domain/cluster.hpp"
#include "planners/model/declared_memory.hpp"

namespace troupe::cli {

std::string assumption_text(const job_spec& job, std::string_view missing) {
  if (!job.assumed_model || job.exact_gpus || (job.memory && job.memory->gb > 0)) return {};
  const double bytes =
      planners::program_bytes(job, job.gpus, 1, cluster_settings{}.memory_headroom);
  return fmt::format("no {}: planned as {}, batch {}, {:.2f} GB, on 1 GPU", missing, job.model.name,
                     job.global_batch, bytes / bytes_per_gb);
}

}  // namespace troupe::cli
