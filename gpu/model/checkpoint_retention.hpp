#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
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

/// Removes the files that trainings have written in checkpoints older than the newest `keep`
/// complete ones up to `iteration`, incomplete ones included; later ones stay, and so do those
/// that are being read. Call with the fence held and the checkpoint of `iteration` durable.
/// `keep` is at least 1.
void remove_old_checkpoints(const std::filesystem::path& root, std::uint64_t iteration,
                            std::uint32_t keep);

}  // namespace troupe::gpu
