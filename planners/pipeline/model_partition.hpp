#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "messages/job.hpp"
#include "messages/plan.hpp"
#include "messages/reason.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/model/stage_memory.hpp"

// Where a model is cut into the stages of a pipeline. A stage owns a contiguous range of pieces
// (model_chain.hpp).

namespace troupe::planners {

/// How many pieces a model has.
std::uint32_t pieces_of(const model& m);

/// Refuses more stages than there are pieces.
expected<void> can_split(const model& m, std::uint32_t stages);

/// What a GPU of a stage has that begins with the piece `first`; `tensor` of them share it. The
/// last stage has what is left of the chain, and of several a copy of a tied embedding.
stage_part part_of_stage(const model_chain& chain, const model& m, std::uint32_t first,
                         std::uint32_t count, std::uint32_t tensor, bool last);

/// As the job says (pipeline.cut), if it does. Else a transformer is cut so that a micro-batch
/// takes the slowest stage the least, by operations, among the cuts whose stages fit the memory; if
/// none does, whatever they need. All stages but the last go forward twice, if the job's pipeline
/// recomputes. The first stage has the embedding, the last one the head, and nothing else if that
/// is so much work. Operators are dealt out by their number, the first stages one more where they
/// do not divide. A job in slots, which needs no model, has empty parts. At most as many stages as
/// pieces.
std::vector<stage_part> split_model(const job_spec& job, std::uint32_t stages,
                                    const stage_load& load = {});

/// The parts that a plan's stages have; empty ones for a job in slots. Refuses stages that are not
/// the whole model, in order and without gaps.
expected<std::vector<stage_part>> parts_of(const job_spec& job,
                                           const std::vector<plan_stage>& stages);

/// A link of a chain that is cut: what is to be even, and what no range may have too much of.
struct chain_link {
  double weight = 0, size = 0;
};
/// How many links each of `parts` contiguous ranges has, at least one each, so that the largest sum
/// of weights is the least possible; of such cuts the one with the least sum of squares. No range's
/// size is more than `max_size`; empty if that cannot be. The last range counts `last_share` of
/// its weight, at most 1. No number is negative, and there are at least as many links as parts, of
/// which there is at least one.
std::vector<std::uint32_t> cut_evenly(const std::vector<chain_link>& chain, std::uint32_t parts,
                                      double max_size = std::numeric_limits<double>::infinity(),
                                      double last_share = 1);

}  // namespace troupe::planners
