#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "messages/base/descriptor.hpp"
#include "messages/base/reason.hpp"

// Access to files that jobs and users name, or that lie where their programs may write: a name may
// be a fifo, a device, a link or a very large file, and a file may become shorter at any time.
// Nothing here blocks on a fifo, and nothing is mapped into memory: a page that a file has lost
// would end the process.

namespace troupe {

/// Where programs may write links are refused: they would lead out of that directory. A model's
/// folder may consist of links.
enum class links { refused, followed };

struct file_piece {
  std::uint64_t offset = 0;  // in the file
  std::string bytes;
};

/// A regular file that is open for reading.
class untrusted_file {
 public:
  /// Fails if it is not a regular file: `unknown` if it does not exist, else `invalid`.
  static expected<untrusted_file> open(const std::string& path, links l = links::followed);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened
  /// Fills `to` from `offset` on; fails if the file has become too short for that.
  expected<void> read(std::uint64_t offset, std::span<std::byte> to) const;
  /// Up to `max_bytes` bytes of those that it had when it was opened, from `offset` on, or from the
  /// next data if the file has a hole there.
  expected<file_piece> piece(std::uint64_t offset, std::size_t max_bytes) const;

 private:
  untrusted_file(std::string path, descriptor fd, std::uint64_t size)
      : path_{std::move(path)}, fd_{std::move(fd)}, size_{size} {}

  std::string path_;
  descriptor fd_;
  std::uint64_t size_ = 0;
};

/// All of a file; fails if it is larger than that.
expected<std::string> read_file(const std::string& path, std::size_t limit_bytes);

/// Reads a file line by line, in blocks.
class line_reader {
 public:
  line_reader(untrusted_file file, std::size_t max_line_bytes)
      : file_{std::move(file)}, max_line_bytes_{max_line_bytes} {}

  /// The next line that ends with a newline, without it; nothing: there is none. Fails at a longer
  /// line than allowed.
  expected<std::optional<std::string>> next();

 private:
  untrusted_file file_;
  std::size_t max_line_bytes_;
  std::string block_;
  std::size_t at_ = 0;      // in the block
  std::uint64_t read_ = 0;  // bytes of the file
  std::uint64_t line_ = 0;
};

/// Without following a link, as all that follow here: up to `max_bytes` bytes from `offset` on.
expected<file_piece> read_piece(const std::string& path, std::uint64_t offset,
                                std::size_t max_bytes);

/// The last `max_bytes` bytes.
expected<file_piece> read_tail(const std::string& path, std::size_t max_bytes);

/// Appends to a regular file, which is created if needed.
expected<void> append_to(const std::string& path, const std::string& text);

/// If a regular file uses more than `max_bytes` bytes of disk, punches out its older half; the rest
/// keeps its offsets, also for concurrent appends. False: the file system does not support it.
bool limit_disk_use(const std::string& path, std::uint64_t max_bytes);

}  // namespace troupe
