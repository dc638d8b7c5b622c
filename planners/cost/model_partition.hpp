#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/model/stage_memory.hpp"

// Cutting a model into the stages of a pipeline (docs/planners/pipelines.md, "Where a model is
// cut"). A stage owns a contiguous range of pieces (model_chain.hpp). This cut is for GPUs of equal
// speed; search/stage_cut.hpp is the one for mixed GPUs.

namespace troupe::planners {

/// Is the piece in one stage with the one before it?
bool is_glued(const model& m, std::uint32_t piece);

/// The number of pieces of a model: two per layer of a transformer, or its operators.
std::uint32_t pieces_of(const model& m);

/// Fails if there are more stages than pieces.
expected<void> can_split(const model& m, std::uint32_t stages);

/// The part of the model on each GPU of a stage: `count` pieces from `first`, shared by `tensor`
/// GPUs; the last stage has everything from `first` on. The last of several stages also has a copy
/// of a tied embedding.
stage_part part_of_stage(const model_chain& chain, const model& m, std::uint32_t first,
                         std::uint32_t count, std::uint32_t tensor, bool last);

/// The job's own cut (pipeline.cut), if it has one. Otherwise the model is cut so that the slowest
/// stage's time per micro-batch is minimal among the cuts that fit the memory, or among all cuts if
/// none fits: by FLOPs, or for a program's layers by the profile of the job or of `gpu`, if it has
/// them. All stages but the last do their forward twice if the job recomputes. A transformer's
/// first stage has the embedding and the last one the head, alone if that is enough work; glued
/// layers stay in one stage. A family given as operators is cut by their number, with one more in
/// the first stages if it is not divisible. A slot job, which has no model, has empty parts.
/// Precondition: at most as many stages as pieces that may be cut apart.
std::vector<stage_part> split_model(const job_spec& job, std::uint32_t stages,
                                    const stage_load& load = {}, const gpu_type& gpu = {});

/// The parts of a plan's stages; empty ones for a slot job. Fails if the stages are not the whole
/// model, in order and without gaps.
expected<std::vector<stage_part>> parts_of(const job_spec& job,
                                           const std::vector<plan_stage>& stages);

/// A link of a chain: the weight to balance (FLOPs), and the size that is limited per range
/// (bytes).
struct chain_link {
  double weight = 0, size = 0;
};
/// The lengths of `parts` contiguous ranges, at least one link each, with the least maximum of the
/// ranges' weights and, among those cuts, the least sum of squares. No range's size exceeds
/// `max_size`; empty if that is impossible. The last range counts `last_share` of its weight, at
/// most 1. Preconditions: numbers are not negative, and 1 <= parts <= number of links. O(links *
/// log) for the maximum, O(parts * links^2) at worst for the squares.
std::vector<std::uint32_t> cut_evenly(const std::vector<chain_link>& chain, std::uint32_t parts,
                                      double max_size = std::numeric_limits<double>::infinity(),
                                      double last_share = 1);

}  // namespace troupe::planners
