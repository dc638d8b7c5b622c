#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/lookup_row.hpp"

namespace troupe::formats {

/// The rows of a lookup table's file (docs/files.md), each shape once. With a catalogue, their GPU
/// types must be in it.
expected<std::vector<lookup_row>> load_lookup_table(const std::filesystem::path& file,
                                                    std::span<const gpu_type> catalogue = {});

}  // namespace troupe::formats
