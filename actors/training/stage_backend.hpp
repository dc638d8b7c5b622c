#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/protocol/protocol.hpp"
#include "actors/training/stage.hpp"
#include "gpu/device/stage_device.hpp"
#include "messages/stage.hpp"

namespace troupe::actors {

/// Refuses what the device cannot be or do, and data that cannot be read.
expected<stage_backend> make_backend(const stage_setup& s);

/// What the node is told when a device of the stage can do nothing more until the node is started
/// again.
inline training_over lost_device(const stage_setup& s, const reason& why) {
  return {s.name.lease, s.name, false, part_report::state::stopped, 0, why.text};
}
inline bool is_lost_device(const training_over& over) {
  return !over.trainer && over.how == part_report::state::stopped;
}

/// This lease is the one that writes checkpoints into a directory from now on. Refuses (stale) if a
/// newer one has opened it, and what cannot be written.
expected<void> open_checkpoints(const std::string& directory, lease_id lease);

/// Refuses (stale) if a newer lease has opened the directory since.
expected<void> may_save(const std::string& directory, lease_id lease);

/// Iterations in the newest whole checkpoint of a directory; 0: there is none.
std::uint64_t newest_saved(const std::string& directory);

/// Where the checkpoint after so many iterations is.
std::string checkpoint_path(const std::string& directory, std::uint64_t iteration);

/// All stages have written theirs: makes the checkpoint whole. `stages`: pipeline 0's first.
expected<void> complete_checkpoint(const std::vector<stage_setup>& stages, std::uint64_t iteration);

}  // namespace troupe::actors
