#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "messages/base/descriptor.hpp"
#include "messages/base/reason.hpp"

// Which checkpoints of a training stay. Whoever reads one holds a lock on its index, and one that
// is read is not removed.

namespace troupe::gpu {

/// Keeps a checkpoint's files in place while it lives, in this process and in others.
class reading_lock {
 public:
  /// A folder without an index, or a file, is no checkpoint and needs no lock. Refuses
  /// (unavailable) if the checkpoint is being removed.
  static expected<std::shared_ptr<const reading_lock>> of(const std::filesystem::path& checkpoint);

 private:
  explicit reading_lock(descriptor index) : index_{std::move(index)} {}
  descriptor index_;
};

/// The checkpoint whose held-out loss is the lowest: `best.json` in a training's folder.
struct best_checkpoint {
  std::uint64_t iteration = 0;
  double loss = 0;
};
expected<void> write_best(const std::filesystem::path& root, const best_checkpoint& b);
/// Nothing: the training has not evaluated. Fails for a file that is damaged.
expected<std::optional<best_checkpoint>> read_best(const std::filesystem::path& root);

/// Which complete checkpoints of a training stay.
struct kept_checkpoints {
  std::uint32_t newest = 1;  // this many, at least 1
  std::uint64_t best = 0;    // that of this iteration; 0: none
  std::uint32_t each = 0;    // those after each multiple of this many iterations; 0: none
};

/// Removes the files that trainings have written in other checkpoints up to `iteration`, incomplete
/// ones included; later ones stay, and so do those that are being read: the one that an attempt
/// began from has been read by the time that its first one is complete. Call with the fence held
/// and the checkpoint of `iteration` durable.
void remove_old_checkpoints(const std::filesystem::path& root, std::uint64_t iteration,
                            const kept_checkpoints& keep);

}  // namespace troupe::gpu
