#include "cli/cluster/socket_directory.hpp"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "messages/base/whole_file.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// Is the path a directory (not a link to one) that only this user may use?
// Sockets here are reached without keys: permission to open the file is the only protection.
expected<void> check_private(const fs::path& directory) {
  // lstat, so that a link planted in /tmp is not followed to another user's directory.
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0)
    return refuse(reason::kind::unavailable,
                  fmt::format("{}: {}", directory.string(), std::strerror(errno)));
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid())
    return refuse(reason::kind::refused,
                  fmt::format("{}: must be a directory that this user owns, for sockets",
                              directory.string()));
  if ((info.st_mode & 077) != 0 && ::chmod(directory.c_str(), 0700) != 0)
    return refuse(reason::kind::refused, fmt::format("{}: accessible to other users: {}",
                                                     directory.string(), std::strerror(errno)));
  return {};
}

fs::path record_of(const fs::path& state) {
  return state / "sockets.path";
}

fs::path recorded(const fs::path& state) {
  std::ifstream in{record_of(state)};
  std::string line;
  std::getline(in, line);
  return line;
}

/// $XDG_RUNTIME_DIR belongs to this user by definition; /tmp is shared.
expected<fs::path> make_elsewhere() {
  const char* own = std::getenv("XDG_RUNTIME_DIR");
  const fs::path parent = own && check_private(own) ? fs::path{own} : fs::temp_directory_path();
  auto name = (parent / "troupe-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    return refuse(reason::kind::unavailable,
                  fmt::format("cannot create a directory for sockets in {}: {}", parent.string(),
                              std::strerror(errno)));
  return fs::path{name};
}

}  // namespace

expected<fs::path> socket_directory(const fs::path& state, std::size_t longest_name) {
  // The kernel's limit of 107 bytes is shorter than many build directories' paths.
  constexpr std::size_t longest_path = sizeof(sockaddr_un::sun_path) - 1;
  const auto here = state / "sockets";
  if (here.native().size() + 1 + longest_name <= longest_path) {
    if (::mkdir(here.c_str(), 0700) != 0 && errno != EEXIST)
      return refuse(reason::kind::invalid,
                    fmt::format("{}: cannot be created: {}", here.string(), std::strerror(errno)));
    if (auto ok = check_private(here); !ok) return refuse(ok.error());
    return here;
  }
  // A restart uses the same directory: clients that wait have its path.
  if (const auto old = recorded(state); !old.empty() && check_private(old)) return old;
  auto fresh = make_elsewhere();
  if (!fresh) return fresh;
  if (auto ok = write_whole_file(record_of(state).string(), fresh->string() + '\n'); !ok)
    return refuse(ok.error());
  return fresh;
}

void remove_socket_directory(const fs::path& state) {
  const auto elsewhere = recorded(state);
  std::error_code ignored;
  if (!elsewhere.empty() && check_private(elsewhere)) fs::remove_all(elsewhere, ignored);
  fs::remove(record_of(state), ignored);
}

}  // namespace troupe::cli
