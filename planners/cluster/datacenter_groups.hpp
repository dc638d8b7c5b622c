#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "planners/cluster/idle_index.hpp"

// Groups of datacenters, each of which has a link to each other one (docs/files.md, "Several
// datacenters").

namespace troupe::planners {

/// By index: datacenters with GPUs, and which of them are linked.
struct link_graph {
  std::vector<std::uint32_t> used;        // datacenters with GPUs
  std::vector<std::vector<bool>> linked;  // by datacenter and datacenter

  explicit link_graph(const cluster& c);
  bool all_linked() const;
};

/// Datacenters whose GPUs a job may have together: whether each one belongs to them, by index.
using datacenter_group = std::vector<bool>;

/// The largest groups of datacenters with GPUs of which each two have a link: one if all have.
std::vector<datacenter_group> linked_groups(const cluster& c);

/// The idle GPUs of a group's datacenters.
idle_index idle_in(const cluster& c, const idle_index& idle, const datacenter_group& group);

/// The GPUs of a type in a group's datacenters, idle or not.
std::uint64_t gpus_in(const cluster& c, gpu_index g, const datacenter_group& group);

/// "east and west, which have no link (wan)": the end of a sentence that says why a job gets no
/// GPUs of several datacenters. Empty: each two have a link.
std::string unlinked_text(const cluster& c);

/// These datacenters alone.
datacenter_group group_of(const cluster& c, const std::vector<std::uint32_t>& members);

/// Each datacenter with GPUs by itself.
std::vector<datacenter_group> each_alone(const cluster& c, const link_graph& g);

/// "east, west and south"
std::string names_of(const cluster& c, const std::vector<std::uint32_t>& datacenters);

}  // namespace troupe::planners
