#include "runtime/host/private_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "messages/base/descriptor.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::runtime {

namespace {

std::atomic<int> umask_before{-1};

}  // namespace

void make_files_private() {
  const auto before = ::umask(0077);
  int unknown = -1;
  umask_before.compare_exchange_strong(unknown, static_cast<int>(before));
}

// Programs get the user's own umask back: their results are not secrets of this process.
unsigned umask_of_programs() {
  if (const int before = umask_before; before >= 0) return static_cast<unsigned>(before);
  const auto now = ::umask(0077);
  ::umask(now);
  return now;
}

// The directory is opened once, and its owner and mode are checked and changed through that
// descriptor: by path, another user could replace it in between.
expected<void> prepare_private_directory(const std::string& path) {
  const auto refused = [&](const std::string& why) {
    return refuse(reason::kind::invalid, "{}: {}", path, why);
  };
  std::error_code failed;
  if (const auto above = std::filesystem::path{path}.parent_path(); !above.empty())
    std::filesystem::create_directories(above, failed);
  if (failed) return refused(fmt::format("cannot be created: {}", failed.message()));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return refused(fmt::format("cannot be created: {}", std::strerror(errno)));
  const descriptor fd{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (fd < 0) return refused(fmt::format("cannot be used: {}", std::strerror(errno)));
  struct stat s {};
  const bool known = ::fstat(fd, &s) == 0;
  const bool mine = known && s.st_uid == ::geteuid();
  const bool closed = mine && ((s.st_mode & 0077) == 0 || ::fchmod(fd, 0700) == 0);
  if (known && !mine)
    return refused(
        fmt::format("belongs to user {}, but this process runs as user {}: a state directory must "
                    "belong to its user; fix it with chown, or choose another with --state",
                    s.st_uid, ::geteuid()));
  if (!closed) return refused(fmt::format("cannot be closed to others: {}", std::strerror(errno)));
  return {};
}

}  // namespace troupe::runtime
