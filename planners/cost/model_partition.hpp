#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/model/stage_memory.hpp"

// Cutting a model into the stages of a pipeline. A stage owns a contiguous range of pieces
// (model_chain.hpp).

namespace troupe::planners {

/// How many pieces a model has.
std::uint32_t pieces_of(const model& m);

/// Fails if there are more stages than pieces.
expected<void> can_split(const model& m, std::uint32_t stages);

/// What each GPU of a stage holds: `count` pieces from `first`, shared by `tensor` GPUs. The last
/// of several stages also has a copy of a tied embedding.
stage_part part_of_stage(const model_chain& chain, const model& m, std::uint32_t first,
                         std::uint32_t count, std::uint32_t tensor, bool last);

/// The job's own cut (pipeline.cut), if it has one. Otherwise a transformer is cut so that the
/// slowest stage's time per micro-batch, by operations, is minimal among the cuts that fit the
/// memory, or among all cuts if none fits. All stages but the last do their forward twice if the
/// job recomputes. The first stage has the embedding and the last one the head, alone if that is
/// enough work. A model given as operators is cut by their number, the first stages getting one
/// more if it is not divisible. A slot job, which has no model, has empty parts. At most as many
/// stages as pieces.
std::vector<stage_part> split_model(const job_spec& job, std::uint32_t stages,
                                    const stage_load& load = {});

/// The parts of a plan's stages; empty ones for a slot job. Fails if the stages are not the whole
/// model, in order and without gaps.
expected<std::vector<stage_part>> parts_of(const job_spec& job,
                                           const std::vector<plan_stage>& stages);

/// A link of a chain: the weight to balance, and the size that is limited per range.
struct chain_link {
  double weight = 0, size = 0;
};
/// The lengths of `parts` contiguous ranges, at least one link each, with the least maximum of the
/// ranges' weights and, among those cuts, the least sum of squares. No range's size exceeds
/// `max_size`; empty if that is impossible. The last range counts `last_share` of its weight, at
/// most 1. Numbers are not negative, parts is at least 1, and there are at least as many links as
/// parts.
std::vector<std::uint32_t> cut_evenly(const std::vector<chain_link>& chain, std::uint32_t parts,
                                      double max_size = std::numeric_limits<double>::infinity(),
                                      double last_share = 1);

}  // namespace troupe::planners
