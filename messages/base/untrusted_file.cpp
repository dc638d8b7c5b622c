#include "messages/base/untrusted_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"

namespace troupe {

namespace {

struct opened {
  descriptor fd;
  std::uint64_t size = 0, disk_bytes = 0;
};

/// Opening a fifo or a device does not wait for another process, nor make it this one's terminal.
// The file is examined through its descriptor, after opening: between a check of the path and its
// use, a program could exchange the file.
expected<opened> open_regular(const std::string& path, int how, links l) {
  const int follow = l == links::refused ? O_NOFOLLOW : 0;
  descriptor fd{::open(path.c_str(), how | follow | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0600)};
  const auto failure = [&](int error, const std::string& why) {
    return refuse(error == ENOENT ? reason::kind::unknown : reason::kind::invalid,
                  fmt::format("{}: {}", path, why));
  };
  struct stat s {};
  if (fd < 0 || ::fstat(fd, &s) != 0) {
    const int why = errno;
    // A link, a fifo without a reader or a directory cannot be opened so.
    if ((why == ELOOP && l == links::refused) || why == ENXIO || why == EISDIR)
      return failure(
          0, fmt::format("is {}, expected a regular file", why == ELOOP   ? "a link"
                                                           : why == ENXIO ? "a fifo or a device"
                                                                          : "a directory"));
    return failure(why, fmt::format("cannot be opened: {}", std::strerror(why)));
  }
  if (!S_ISREG(s.st_mode))
    return failure(
        0, fmt::format("is {}, expected a regular file", S_ISDIR(s.st_mode)    ? "a directory"
                                                         : S_ISFIFO(s.st_mode) ? "a fifo"
                                                                               : "a device"));
  return opened{std::move(fd), static_cast<std::uint64_t>(s.st_size),
                static_cast<std::uint64_t>(s.st_blocks) * 512};
}

auto cannot_read(const std::string& path, int why) {
  return refuse(reason::kind::unavailable, "{}: cannot be read: {}", path, std::strerror(why));
}

}  // namespace

expected<untrusted_file> untrusted_file::open(const std::string& path, links l) {
  auto o = open_regular(path, O_RDONLY, l);
  if (!o) return refuse(o.error());
  return untrusted_file{path, std::move(o->fd), o->size};
}

// A file may shrink while it is read; pread returns 0 then, where a mapping would raise SIGBUS.
expected<void> untrusted_file::read(std::uint64_t offset, std::span<std::byte> to) const {
  const auto end = offset + to.size();
  while (!to.empty()) {
    const auto n = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(end - to.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot_read(path_, errno);
    if (n == 0) {
      struct stat s {};
      const bool known = ::fstat(fd_, &s) == 0;
      return refuse(reason::kind::malformed,
                    "{}: has become shorter: found {} bytes, expected at least {}", path_,
                    known ? s.st_size : 0, end);
    }
    to = to.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

// SEEK_DATA skips the hole that limit_disk_use() has punched, so that a follower of a log continues
// with the oldest bytes that are left.
expected<file_piece> untrusted_file::piece(std::uint64_t offset, std::size_t max_bytes) const {
  const auto data = offset < size_ ? ::lseek(fd_, static_cast<off_t>(offset), SEEK_DATA) : -1;
  file_piece p{data < 0 ? std::min(offset, size_) : static_cast<std::uint64_t>(data), {}};
  p.bytes.resize(std::min<std::uint64_t>(max_bytes, size_ - std::min(p.offset, size_)));
  const auto n = ::pread(fd_, p.bytes.data(), p.bytes.size(), static_cast<off_t>(p.offset));
  if (n < 0) return cannot_read(path_, errno);
  p.bytes.resize(static_cast<std::size_t>(n));
  return p;
}

// The size is checked before the memory is reserved; a file that grows afterwards is read up to its
// size at opening.
expected<std::string> read_file(const std::string& path, std::size_t limit_bytes) {
  const auto file = untrusted_file::open(path);
  if (!file) return refuse(file.error());
  if (file->size() > limit_bytes)
    return refuse(reason::kind::malformed, "{}: found {} bytes, expected at most {}", path,
                  file->size(), limit_bytes);
  std::string all(file->size(), '\0');
  if (auto ok = file->read(0, std::as_writable_bytes(std::span{all})); !ok)
    return refuse(ok.error());
  return all;
}

// The limit applies before a line is complete: a file of one endless line takes a block beyond the
// limit and no more memory.
expected<std::optional<std::string>> line_reader::next() {
  constexpr std::size_t block_bytes = 1 << 16;
  for (;;) {
    const auto end = block_.find('\n', at_);
    const auto length = std::min(end, block_.size()) - at_;
    if (length > max_line_bytes_)
      return refuse(reason::kind::malformed, "{}: line {} has more than {} bytes", file_.path(),
                    line_ + 1, max_line_bytes_);
    if (end != std::string::npos) {
      auto line = block_.substr(at_, length);
      at_ = end + 1;
      ++line_;
      return line;
    }
    block_.erase(0, std::exchange(at_, 0));
    const auto more = std::min<std::uint64_t>(block_bytes, file_.size() - read_);
    if (more == 0) return std::nullopt;
    const auto before = block_.size();
    block_.resize(before + more);
    if (auto ok = file_.read(read_, std::as_writable_bytes(std::span{block_}).subspan(before)); !ok)
      return refuse(ok.error());
    read_ += more;
  }
}

expected<file_piece> read_piece(const std::string& path, std::uint64_t offset,
                                std::size_t max_bytes) {
  const auto f = untrusted_file::open(path, links::refused);
  if (!f) return refuse(f.error());
  return f->piece(offset, max_bytes);
}

expected<file_piece> read_tail(const std::string& path, std::size_t max_bytes) {
  const auto f = untrusted_file::open(path, links::refused);
  if (!f) return refuse(f.error());
  return f->piece(f->size() - std::min<std::uint64_t>(max_bytes, f->size()), max_bytes);
}

// One write in append mode: lines of several processes do not mix.
expected<void> append_to(const std::string& path, const std::string& text) {
  const auto f = open_regular(path, O_WRONLY | O_APPEND | O_CREAT, links::refused);
  if (!f) return refuse(f.error());
  if (::write(f->fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return refuse(reason::kind::unavailable, "{}: cannot be written: {}", path,
                  std::strerror(errno));
  return {};
}

// Holes and not truncation: a program that appends keeps its offset, and readers of the log keep
// theirs.
bool limit_disk_use(const std::string& path, std::uint64_t max_bytes) {
  constexpr std::uint64_t page = 64 * 1024;  // the kernel zeroes partial blocks only
  const auto f = open_regular(path, O_WRONLY, links::refused);
  if (!f || f->disk_bytes <= max_bytes) return true;
  const auto drop = (f->size - std::min(f->size, max_bytes / 2)) / page * page;
  return drop == 0 || ::fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                  static_cast<off_t>(drop)) == 0;
}

}  // namespace troupe
