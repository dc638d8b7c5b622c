#pragma once

#include <cstdint>

#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// A pipeline's part of the evaluations of held-out samples. Their micro-batches are dealt to the
/// pipelines in turn, and follow the update of an iteration.
struct evaluation_share {
  bool any = false;                // the training evaluates
  std::uint32_t every = 0;         // updates between evaluations; 0: after the last one alone
  std::uint32_t microbatches = 0;  // of this pipeline

  /// `last`: the job's last iteration.
  bool is_due(std::uint64_t iteration, std::uint64_t last) const {
    return any && (iteration == last || (every > 0 && iteration % every == 0));
  }
};

evaluation_share evaluations_of(const stage_setup& s);

}  // namespace troupe::actors
