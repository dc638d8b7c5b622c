#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::planners {

/// A part of a pipeline that a replica computes at its stage in an iteration: the micro-batches
/// `first` to `first + count - 1`, counted from the pipeline's first one, 0.
struct share {
  std::uint32_t pipeline = 0, first = 0, count = 0;

  bool operator==(const share&) const = default;
  std::uint32_t end() const { return first + count; }
};

/// Gradients that a replica has added up and sends as one: those of a share's micro-batches.
using piece = share;

/// In ascending order, and as few as possible: shares that follow each other become one.
std::vector<share> in_order(std::vector<share> work);

/// The pieces that a replica sends of its work, in ascending order. A pipeline's gradient is the
/// sum of its micro-batches from the first on, so a range from the first one is a piece; of any
/// other range every micro-batch is a piece, which is added by itself.
std::vector<piece> pieces_of(const std::vector<share>& work);

/// The order in which a pipeline's pieces are added, as positions in `pieces`: so that the sum is
/// that of its micro-batches one after another. Fails (malformed) unless the pieces cover each of
/// its `microbatches` once, and all but the one with the first micro-batch have one each.
expected<std::vector<std::size_t>> fold_plan(const std::vector<piece>& pieces,
                                             std::uint32_t microbatches);

}  // namespace troupe::planners
