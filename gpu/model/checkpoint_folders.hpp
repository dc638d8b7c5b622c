#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

// The folders of a training's checkpoints.

namespace troupe::gpu {

/// root/iteration-000040
std::filesystem::path checkpoint_directory(const std::filesystem::path& root,
                                           std::uint64_t iteration);

/// In a complete checkpoint's folder.
inline constexpr const char* checkpoint_index = "model.safetensors.index.json";

struct listed_checkpoint {
  std::uint64_t iteration = 0;
  std::filesystem::path directory;
  bool complete = false;
};
/// The checkpoints' folders in a training's, in any order.
std::vector<listed_checkpoint> checkpoints_in(const std::filesystem::path& root);

struct found_checkpoint {
  std::uint64_t iteration = 0;
  std::filesystem::path directory;
};
/// The newest complete checkpoint.
std::optional<found_checkpoint> newest_checkpoint(const std::filesystem::path& root);

}  // namespace troupe::gpu
