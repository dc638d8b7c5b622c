#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "messages/reason.hpp"

namespace troupe::runtime {

/// A file locked by this process for as long as the object lives; the kernel unlocks it when the
/// process dies, however. The file stays, and holds the number of the process that locked it last.
class file_lock {
 public:
  /// Makes the file (its directory must exist) and locks it. Refuses, with a sentence that begins
  /// with `what` and names the process, if another has it: "what is in use by process 4711".
  static expected<file_lock> take(const std::string& path, std::string_view what);

  /// The process that has the lock; nothing if nobody has it, or no such file.
  static std::optional<pid_t> holder(const std::string& path);

  file_lock(file_lock&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  file_lock& operator=(file_lock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~file_lock();

 private:
  explicit file_lock(int fd) : fd_{fd} {}
  int fd_ = -1;
};

}  // namespace troupe::runtime
