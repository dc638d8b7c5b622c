#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "gpu/model/checkpoint.hpp"
#include "gpu/model/safetensors.hpp"
#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// Whether a checkpoint is a program's (layer_index.hpp).
bool is_of_program(const checkpoint& c);

struct exported_layers {
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;  // their values; without those of buffers and of other names
  std::uint64_t frozen = 0;      // parameters that are in a folder of their own, and not written
};

/// The tensors that export_layers() writes. `from` outlives them.
expected<std::vector<tensor_to_copy>> layers_to_copy(const checkpoint& from);

/// Writes a program's parameters and buffers to one safetensors file, in their own types, as
/// nn.Sequential(*layers) names them ("3.weight") or as the program does; a tied parameter under
/// all of its names. The names are in the checkpoint. No optimizer state.
expected<exported_layers> export_layers(const checkpoint& from, const std::filesystem::path& file);

}  // namespace troupe::gpu
