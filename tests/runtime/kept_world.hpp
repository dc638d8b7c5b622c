#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/host/real_clock.hpp"
#include "runtime/keeper/keeper.hpp"
#include "runtime/processes.hpp"

// Programs under keepers, and the processes around them.

namespace troupe::runtime::test {

inline constexpr double no_limit_s = 1e9;

inline double seconds_from_now(double s) {
  return real_clock{}.now_s() + s;
}

struct kept_world {
  explicit kept_world(int lock = -1) {
    auto started = keeper_server::start(records, lock);
    REQUIRE(started);
    server = std::move(*started);
  }
  std::unique_ptr<kept_program> run(const process_options& o, double lease_s = no_limit_s) const {
    auto p = server->run(o, seconds_from_now(lease_s));
    REQUIRE(p);
    return std::move(*p);
  }
  bool on_record() const {
    return std::filesystem::exists(records) && !std::filesystem::is_empty(records);
  }

  scratch dir;
  std::string records = dir / "groups";
  std::unique_ptr<keeper_server> server;
};

inline kept_end end_of(kept_program& p) {
  std::optional<kept_end> end;
  REQUIRE(eventually([&] { return (end = p.poll()).has_value(); }));
  return *end;
}

/// Starts a daemon, which has left the session, the group and the environment behind, and then
/// goes on. The daemon's number is in DIR/daemon, the program's own in DIR/program.
inline process_options with_daemon(const scratch& dir, const std::string& then) {
  return shell("(env -i setsid sh -c 'echo $$ > " + dir / "daemon" + "; exec sleep 1000' &); " +
               "until [ -s " + dir / "daemon" + " ]; do sleep 0.01; done; echo $$ > " +
               dir / "program" + "; " + then);
}

inline pid_t parent_of(pid_t pid) {
  const auto stat = contents("/proc/" + std::to_string(pid) + "/stat");
  return std::stoi(stat.substr(stat.rfind(')') + 4));
}

inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc"}) {
    const auto pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    const auto stat = contents("/proc/" + std::to_string(pid) + "/stat");
    const auto end = stat.rfind(')');
    if (end != std::string::npos && stat[end + 2] != 'Z' &&
        std::stoi(stat.substr(end + 4)) == parent)
      found.push_back(pid);
  }
  return found;
}

/// The process that starts keepers: the parent of a program's keeper.
inline pid_t server_of(pid_t program) {
  return parent_of(parent_of(program));
}

inline bool lock_is_free(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const bool free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return free;
}

}  // namespace troupe::runtime::test
