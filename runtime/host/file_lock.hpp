#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "messages/base/descriptor.hpp"
#include "messages/base/reason.hpp"

namespace troupe::runtime {

/// A file locked by this process for as long as the object lives; the kernel releases the lock when
/// the process dies. The file remains and holds the id of the last owner's process.
class file_lock {
 public:
  /// Creates the file (its directory must exist) and locks it. If another process has it, fails
  /// with "WHAT is in use by process 4711".
  static expected<file_lock> take(const std::string& path, std::string_view what);

  /// The process that holds the lock; nothing if none does or there is no such file.
  static std::optional<pid_t> holder(const std::string& path);

  file_lock(file_lock&&) noexcept = default;
  file_lock& operator=(file_lock&&) noexcept = default;
  ~file_lock();

 private:
  explicit file_lock(descriptor fd) : fd_{std::move(fd)} {}
  descriptor fd_;
};

}  // namespace troupe::runtime
