#include "runtime/host/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"

namespace troupe::runtime {
namespace {

// The holder may be writing it at this moment: an empty or cut number is unknown.
std::optional<pid_t> number_in(int fd) {
  char text[32] = {};
  const auto size = ::pread(fd, text, sizeof text - 1, 0);
  pid_t number = 0;
  if (size <= 0 || std::from_chars(text, text + size, number).ec != std::errc{} || number <= 0)
    return {};
  return number;
}

/// Retries for 100 ms: holder() takes the lock briefly, which must not make a start fail.
bool lock_soon(int fd) {
  for (int i = 0; i < 20; ++i) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace

// flock and not O_EXCL: the kernel releases it with the process, so no stale file blocks the next
// start. The number inside is for people.
expected<file_lock> file_lock::take(const std::string& path, std::string_view what) {
  descriptor fd{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (fd < 0)
    return refuse(reason::kind::unavailable, "cannot open the lock {}: {}", path,
                  std::strerror(errno));
  if (!lock_soon(fd)) {
    const auto other = number_in(fd);
    return refuse(reason::kind::refused, "{} is in use by {}", what,
                  other ? fmt::format("process {}", *other) : "another process");
  }
  const auto self = std::to_string(::getpid());
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, self.data(), self.size(), 0) < 0)
    return refuse(reason::kind::unavailable, "cannot write {}: {}", path, std::strerror(errno));
  return file_lock{std::move(fd)};
}

// Tests the lock by taking a shared one for a moment.
std::optional<pid_t> file_lock::holder(const std::string& path) {
  const descriptor fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (fd < 0) return {};
  const bool locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0;
  const auto number = number_in(fd);
  return locked ? number : std::nullopt;
}

file_lock::~file_lock() {
  if (fd_ < 0) return;
  // So that holder() never returns a stale process id.
  [[maybe_unused]] const auto emptied = ::ftruncate(fd_, 0);
}

}  // namespace troupe::runtime
