#pragma once

#include <cstdint>
#include <vector>

#include "planners/replicas/shares.hpp"

namespace troupe::planners {

/// A step of a replica: the forward or the backward of a pipeline's micro-batch.
struct replica_step {
  std::uint32_t pipeline = 0, microbatch = 0;
  bool backward = false;

  bool operator==(const replica_step&) const = default;
};

/// The work of an iteration, by stage and then by replica. At each stage the shares cover every
/// micro-batch once.
using stage_works = std::vector<std::vector<std::vector<share>>>;

/// Each replica's steps, by stage and then by replica: forwards and backwards in ascending order of
/// pipelines and micro-batches, a backward before a forward where both can begin, and at most
/// `in_flight[stage]` micro-batches (at least one) between their forward and their backward. The
/// steps are those of one execution in which a backward takes as long as two forwards; so they end
/// for any shares, in any other times, too: each step waits for others only that came before it.
std::vector<std::vector<std::vector<replica_step>>> ascending_order(
    const stage_works& work, const std::vector<std::uint32_t>& in_flight);

}  // namespace troupe::planners
