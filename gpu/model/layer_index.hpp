#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// A layer's file by its name: layer-00007-lease-3.safetensors, without a lease layer-00007...
struct saved_layer {
  std::uint32_t layer = 0;
  std::uint64_t lease = 0;  // 0: none
};
/// Nothing: no worker writes a file of this name.
std::optional<saved_layer> saved_layer_of(std::string_view name);

/// A program's checkpoint has a file for each layer that has something to save,
/// layer-00007-lease-3.safetensors (python/troupe/layers/checkpoint.py). Called when all stages
/// have saved: writes model.safetensors.index.json of a lease's files, by which the checkpoint is
/// complete. Fails if there are none, or if one is of another iteration.
expected<void> write_layer_index(const std::filesystem::path& directory, std::uint64_t lease,
                                 std::uint64_t iteration);

}  // namespace troupe::gpu
