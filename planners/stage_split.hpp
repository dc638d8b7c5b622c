#pragma once

#include <cstdint>
#include <vector>

#include "messages/job.hpp"
#include "messages/reason.hpp"

// Where a model is cut into the stages of a pipeline. A stage owns a contiguous range of pieces: of
// a transformer its sublayers (attention with its residual sum, then the MLP with its own; two a
// layer), of a model that is given as operators those.

namespace troupe::planners {

/// What a stage has of a model, for one sequence.
struct stage_part {
  std::uint32_t first = 0, count = 0;  // pieces; 2i and 2i + 1 are in layer i of a transformer
  double flops = 0, parameters = 0;
  double activation_bytes = 0;  // kept from its forward to its backward
  double output_bytes = 0;

  bool operator==(const stage_part&) const = default;
};

/// How many pieces a model has.
std::uint32_t pieces_of(const model& m);

/// Refuses more stages than there are pieces.
expected<void> can_split(const model& m, std::uint32_t stages);

/// A transformer is cut so that the forward of the slowest stage takes the least, by operations:
/// the first stage has the embedding, the last one the head, and nothing else if that is so much
/// work. Operators are dealt out by their number, the first stages one more where they do not
/// divide. At most as many stages as pieces.
std::vector<stage_part> split_model(const model& m, std::uint32_t stages);

/// The same of a job: a pipeline study, which says its costs in slots, has empty parts.
std::vector<stage_part> parts_of(const job_spec& job, std::uint32_t stages);

/// How many of these weights each of `parts` contiguous ranges has, at least one each, so that the
/// largest sum is the least possible; of such cuts the one with the least sum of squares. No weight
/// is negative, and there are at least as many as parts, of which there is at least one.
std::vector<std::uint32_t> cut_evenly(const std::vector<double>& weights, std::uint32_t parts);

}  // namespace troupe::planners
