#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol/node_interface.hpp"
#include "actors/training/device/stage_options.hpp"
#include "gpu/device/device_type.hpp"
#include "gpu/model/checkpoint_retention.hpp"
#include "gpu/saving/checkpoint_writer.hpp"
#include "gpu/worker/worker_process.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Creates the device and opens the training data. Fails if the device cannot run the stage, or if
/// the data cannot be read. `executor`: of a device that has a guest; else null. `make_cuda`: of
/// CUDA devices; null: make_shared_cuda_device. `start_worker`: of a program's; null: there are
/// none here.
expected<stage_backend> make_backend(
    const stage_setup& s, const std::shared_ptr<gpu::device_executor>& executor = nullptr,
    const gpu::cuda_device_maker& make_cuda = nullptr,
    const gpu::worker_starter& start_worker = nullptr);

/// The backend of a stage that shares its peer's on this node; without a device: that is gone.
/// Fails likewise, and where the peer's device can compute no other pipeline.
expected<stage_backend> share_backend(const stage_setup& s, stage_backend peer);

/// Tells the node that a device of the stage is unusable until the node is restarted.
inline training_over lost_device(const stage_setup& s, const reason& why) {
  return {s.name.lease, s.name, false, part_report::state::stopped, why.text};
}
inline bool is_lost_device(const training_over& over) {
  return !over.trainer && over.how == part_report::state::stopped;
}

/// Writes the stage's file of a checkpoint from a copy of its values, if the stage's lease may
/// still write: a newer one that has opened the folder owns it.
gpu::checkpoint_writer::work writing_of(const stage_setup& s, const std::string& directory,
                                        gpu::operations::values::result copy);

/// The path of the checkpoint after that many iterations.
std::string checkpoint_path(const std::string& directory, std::uint64_t iteration);

/// All stages have written their files: writes the checkpoint's index, and which checkpoint is the
/// best by its evaluation, if there is one. `stages`: pipeline 0's first.
expected<void> complete_checkpoint(const std::vector<stage_setup>& stages, std::uint64_t iteration,
                                   const std::optional<gpu::best_checkpoint>& best = {});

}  // namespace troupe::actors
