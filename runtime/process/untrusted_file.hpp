#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "messages/reason.hpp"

// Access to files in directories where untrusted programs may write: a name may be a fifo, a
// device, a link or a very large file. Nothing here blocks, and no link is followed.

namespace troupe::runtime {

struct file_piece {
  std::uint64_t offset = 0;  // in the file
  std::string bytes;
};

/// Up to `max_bytes` bytes from `offset` on, or from the next data if the file has a hole there.
/// Fails if it is not a regular file: `unknown` if it does not exist, else `invalid`.
expected<file_piece> read_piece(const std::string& path, std::uint64_t offset,
                                std::size_t max_bytes);

/// The last `max_bytes` bytes.
expected<file_piece> read_tail(const std::string& path, std::size_t max_bytes);

/// Appends to a regular file, which is created if needed.
expected<void> append_to(const std::string& path, const std::string& text);

/// If a regular file uses more than `max_bytes` bytes of disk, punches out its older half; the rest
/// keeps its offsets, also for concurrent appends. False: the file system does not support it.
bool limit_disk_use(const std::string& path, std::uint64_t max_bytes);

}  // namespace troupe::runtime
