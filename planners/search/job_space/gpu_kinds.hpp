#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/idle_index.hpp"

namespace troupe::planners {

/// GPUs on which a stage takes the same time: of one type, in nodes of one emulated speed.
struct gpu_kind {
  gpu_index gpu = 0;
  double speed = 1;

  bool operator==(const gpu_kind&) const = default;
};

/// The kinds of a cluster's idle GPUs, for a job: a kind is an index, in the order of nodes.
class gpu_kinds {
 public:
  gpu_kinds(const cluster& c, const idle_index& idle, const job_spec& job);

  std::size_t size() const { return all_.size(); }
  const gpu_kind& operator[](std::size_t kind) const { return all_[kind]; }
  /// By node; of those without idle GPUs it means nothing.
  const std::vector<std::uint32_t>& of_nodes() const { return of_nodes_; }
  std::vector<gpu_index> types() const;
  /// Whether nodes emulate speeds: a plan names types, so that it does not say which of these.
  bool has_speeds() const {
    return std::ranges::any_of(all_, [](const gpu_kind& k) { return k.speed != 1; });
  }
  std::uint32_t find(const gpu_kind& k) const;

 private:
  std::vector<gpu_kind> all_;
  std::vector<std::uint32_t> of_nodes_;
};

/// The GPUs of a stage of one pipeline: `tensor` of them, in one node of the kind.
struct kind_seat {
  std::uint32_t kind = 0, datacenter = 0, tensor = 1;
};

/// GPUs for these stages, in the order of their pipelines, such that the layout gives each stage
/// one of its kind. None: there are too few, or nodes with several GPUs are in the way, since the
/// layout takes them one after the other.
std::optional<allocation> allocation_of(const cluster& c, const idle_index& idle,
                                        const gpu_kinds& kinds,
                                        const std::vector<kind_seat>& seats);

}  // namespace troupe::planners
