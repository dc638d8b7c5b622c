#include "runtime/process/untrusted_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace troupe::runtime {

namespace {

class regular_file {
 public:
  static expected<regular_file> open(const std::string& path, int how) {
    regular_file f{
        ::open(path.c_str(), how | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0600)};
    const auto no = [&](const char* why) {
      return refuse(errno == ENOENT ? reason::kind::unknown : reason::kind::invalid,
                    fmt::format("{}: {}", path, why));
    };
    if (f.fd_ < 0) return no(errno == ELOOP ? "is a link" : std::strerror(errno));
    struct stat s {};
    if (::fstat(f.fd_, &s) != 0) return no(std::strerror(errno));
    errno = 0;
    if (!S_ISREG(s.st_mode)) return no("is not a regular file");
    f.size_ = static_cast<std::uint64_t>(s.st_size);
    f.disk_bytes_ = static_cast<std::uint64_t>(s.st_blocks) * 512;
    return f;
  }
  regular_file(regular_file&& o) noexcept
      : fd_{std::exchange(o.fd_, -1)}, size_{o.size_}, disk_bytes_{o.disk_bytes_} {}
  ~regular_file() {
    if (fd_ >= 0) ::close(fd_);
  }

  int fd() const { return fd_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t disk_bytes() const { return disk_bytes_; }

  expected<file_piece> read(std::uint64_t offset, std::size_t max_bytes) const {
    const auto data = offset < size_ ? ::lseek(fd_, static_cast<off_t>(offset), SEEK_DATA) : -1;
    file_piece p{data < 0 ? std::min(offset, size_) : static_cast<std::uint64_t>(data), {}};
    p.bytes.resize(std::min<std::uint64_t>(max_bytes, size_ - p.offset));
    const auto n = ::pread(fd_, p.bytes.data(), p.bytes.size(), static_cast<off_t>(p.offset));
    if (n < 0) return refuse(reason::kind::unavailable, std::strerror(errno));
    p.bytes.resize(static_cast<std::size_t>(n));
    return p;
  }

 private:
  explicit regular_file(int fd) : fd_{fd} {}
  int fd_;
  std::uint64_t size_ = 0, disk_bytes_ = 0;
};

}  // namespace

expected<file_piece> read_piece(const std::string& path, std::uint64_t offset,
                                std::size_t max_bytes) {
  const auto f = regular_file::open(path, O_RDONLY);
  if (!f) return refuse(f.error());
  return f->read(offset, max_bytes);
}

expected<file_piece> read_tail(const std::string& path, std::size_t max_bytes) {
  const auto f = regular_file::open(path, O_RDONLY);
  if (!f) return refuse(f.error());
  return f->read(f->size() - std::min<std::uint64_t>(max_bytes, f->size()), max_bytes);
}

expected<void> append_to(const std::string& path, const std::string& text) {
  const auto f = regular_file::open(path, O_WRONLY | O_APPEND | O_CREAT);
  if (!f) return refuse(f.error());
  if (::write(f->fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return refuse(reason::kind::unavailable, fmt::format("{}: {}", path, std::strerror(errno)));
  return {};
}

bool limit_disk_use(const std::string& path, std::uint64_t max_bytes) {
  constexpr std::uint64_t page = 64 * 1024;  // the kernel zeroes partial blocks only
  const auto f = regular_file::open(path, O_WRONLY);
  if (!f || f->disk_bytes() <= max_bytes) return true;
  const auto drop = (f->size() - std::min(f->size(), max_bytes / 2)) / page * page;
  return drop == 0 || ::fallocate(f->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                  static_cast<off_t>(drop)) == 0;
}

}  // namespace troupe::runtime
