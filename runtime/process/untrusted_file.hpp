#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "messages/reason.hpp"

// Files in a place where programs of others may write: what has a file's name there may be a fifo,
// a device, a link or very large. Nothing here waits for anybody, and nothing follows a link.

namespace troupe::runtime {

struct file_piece {
  std::uint64_t offset = 0;  // in the file
  std::string bytes;
};

/// Up to `most` bytes from `offset` on, or from where there is something again if that was dropped.
/// Refuses what is not a regular file: `unknown` if there is nothing, else `invalid`.
expected<file_piece> read_piece(const std::string& path, std::uint64_t offset, std::size_t most);

/// The last `most` bytes.
expected<file_piece> read_tail(const std::string& path, std::size_t most);

/// Adds to a regular file, which is made if there is none.
expected<void> append_to(const std::string& path, const std::string& text);

/// If a regular file takes more than `most` bytes of the disk, its older half is dropped; all else
/// stays at its offset, also for whoever is appending. False: the file system cannot do that.
bool limit_disk_use(const std::string& path, std::uint64_t most);

}  // namespace troupe::runtime
