#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/plans/fits.hpp"

namespace troupe::planners {

/// A stage that a user requests.
struct stage_request {
  gpu_index gpu = 0;
  std::uint32_t pieces = 0;  // consecutive ones of the model
  std::uint32_t tensor_parallel = 1;
};

/// A plan of exactly these stages, in that many pipelines, on the first idle GPUs of each stage's
/// type; samples_per_s by the closed form (cost/plan_time.hpp). The batch is split by the job's
/// keys (split_batch). Fails if the stages are not the whole model, the batch cannot be split, or
/// too few GPUs of a type are idle. Does not check memory: fits() does.
expected<placed_plan> plan_of_stages(const cluster& c, const idle_index& idle, const job_spec& job,
                                     const std::vector<stage_request>& stages,
                                     std::uint32_t pipelines);

/// Groups that a user chose, for the types and datacenters of this cluster. Fails for a name that
/// it does not have.
expected<std::vector<pipeline_group>> groups_on(const cluster& c,
                                                const std::vector<chosen_group>& chosen);

/// Groups of a plan as a user would choose them; none: a stage names no GPU type.
std::optional<std::vector<chosen_group>> chosen_as(const cluster& c,
                                                   const std::vector<pipeline_group>& groups);

/// A plan of exactly these groups of pipelines, of which a stage names its GPU type and pieces, and
/// perhaps its datacenter, on the first idle GPUs there; the rest as plan_of_stages. `rows`:
/// samples of a micro-batch. `where`: the GPUs, in the order in which the layout gives them to
/// stages; null: the first idle ones. Fails, too, if the groups' micro-batches are not the job's
/// global batch.
expected<placed_plan> plan_of_groups(const cluster& c, const idle_index& idle, const job_spec& job,
                                     const std::vector<pipeline_group>& groups, std::uint32_t rows,
                                     const allocation* where = nullptr);

}  // namespace troupe::planners
