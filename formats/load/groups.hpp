#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "formats/parse/reader.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/training.hpp"

namespace troupe::formats {

/// Groups of pipelines that a user chose.
struct chosen_groups {
  std::uint32_t rows = 1;  // samples of a micro-batch
  std::vector<chosen_group> groups;
};

/// A file of groups (docs/files.md), for the types and datacenters of the cluster. A plan as
/// `troupe plan --json` prints it is such a file; one without `groups` is a single group.
expected<chosen_groups> load_groups(const std::filesystem::path& file, const cluster& c);

/// The key `groups` of a map. `c`: the cluster whose names are known; null: any names will do.
std::vector<chosen_group> read_chosen_groups(map_reader& map, const cluster* c);

}  // namespace troupe::formats
