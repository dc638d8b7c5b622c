#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planners/replicas/shares.hpp"

namespace troupe::planners {

/// A replica of a stage, as far as it matters who takes what.
struct replica {
  std::vector<share> work{};  // before
  bool present = true;        // it has not been lost
  double speed = 1;           // micro-batches in a unit of time; above 0
  std::string arithmetic{};   // replicas with the same text make the same bits
  std::uint32_t datacenter = 0;
};

/// The pipelines of a stage.
struct dealt_pipelines {
  std::vector<std::uint32_t> microbatches{};  // by pipeline
  /// The datacenters of their replicas in the plan, by pipeline; empty: one has all.
  std::vector<std::uint32_t> homes{};
  /// Pipelines are dealt whole: of engines whose products add into the gradient, and of stages
  /// whose layers have buffers.
  bool whole = false;
};

/// The work of each replica of a stage once some are lost: those that are present keep theirs, and
/// what nobody has is dealt out. It goes to replicas of the arithmetic that it had, and to others
/// only if none of these is left; among them so that the slowest replica is done as early as
/// possible; then, as far as that leaves a choice, to its pipeline's datacenter, and so that a
/// pipeline's parts are few pieces. With `whole` that earliest end is exact for few lost pipelines,
/// and good for many.
///
/// Fails (infeasible) if no replica is present, and (invalid) if two that are present have the same
/// micro-batch, or one that the pipelines do not have.
expected<std::vector<std::vector<share>>> deal(const std::vector<replica>& replicas,
                                               const dealt_pipelines& of);

}  // namespace troupe::planners
