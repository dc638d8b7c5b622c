#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/plan.hpp"

namespace troupe::formats {

/// Groups of pipelines that a user chose: each stage has its pieces, GPU type and tensor degree,
/// and perhaps its datacenter.
struct chosen_groups {
  std::uint32_t rows = 1;  // samples of a micro-batch
  std::vector<pipeline_group> groups;
};

/// A file of groups (docs/files.md), for the types and datacenters of the cluster. A plan as
/// `troupe plan --json` prints it is such a file; one without `groups` is a single group.
expected<chosen_groups> load_groups(const std::filesystem::path& file, const cluster& c);

}  // namespace troupe::formats
