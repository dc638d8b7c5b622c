#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/protocol.hpp"
#include "actors/stage.hpp"
#include "gpu/stage_device.hpp"
#include "messages/stage.hpp"

namespace troupe::actors {

/// A real device for a stage, and its data.
struct stage_backend {
  std::shared_ptr<gpu::stage_device> device;
  token_feed tokens;  // of the first and the last stage
};

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

/// Iterations in the newest whole checkpoint of a directory; 0: there is none.
std::uint64_t newest_saved(const std::string& directory);

/// Where the checkpoint after so many iterations is.
std::string checkpoint_path(const std::string& directory, std::uint64_t iteration);

/// All stages have written theirs: makes the checkpoint whole. `stages`: pipeline 0's first.
expected<void> complete_checkpoint(const std::vector<stage_setup>& stages, std::uint64_t iteration);

}  // namespace troupe::actors
