#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace troupe {

/// Owns a file descriptor. Closing it leaves errno as it is, so that a caller can still report the
/// error because of which it returns.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) : fd_{fd} {}
  descriptor(descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    other.close();
    return *this;
  }
  ~descriptor() { close(); }

  /// -1: there is none. For system calls; it stays owned here.
  operator int() const { return fd_; }
  void close() {
    const int why = errno;
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    errno = why;
  }

 private:
  int fd_ = -1;
};

}  // namespace troupe
