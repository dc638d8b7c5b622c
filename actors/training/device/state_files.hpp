#pragma once

#include <cstdint>
#include <filesystem>

#include "messages/base/reason.hpp"
#include "messages/wire/frame.hpp"

namespace troupe::actors {

/// Which state it is: of a stage, after that many updates.
struct state_name {
  std::uint32_t stage = 0;
  std::uint64_t iteration = 0;
};

/// A stage's state as bytes: its name, and the files (*.safetensors) that its device has saved
/// into this folder. Fails if they cannot be read.
expected<payload> read_state(const std::filesystem::path& folder, const state_name& which);

/// Writes the files of a state into a folder, which is made. Fails with `malformed` if the bytes
/// are not read_state()'s, or of another state; the folder then has none or some of the files.
expected<void> write_state(const std::filesystem::path& folder, const payload& state,
                           const state_name& which);

/// Writes the files that a device has saved into a folder into another one, which is made. Each is
/// durable, or is not there.
expected<void> copy_state(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace troupe::actors
