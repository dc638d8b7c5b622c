#include "runtime/process/cpu_time.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace troupe::runtime {

// schedstat, unlike stat, has nanoseconds and the time that a runnable thread waited for a core,
// which shows that a machine is too busy. Threads that have ended are not counted.
std::optional<cpu_time> cpu_time_of(pid_t id) {
  constexpr double ns_per_s = 1e9;
  std::optional<cpu_time> all;
  std::error_code error;
  const std::filesystem::path threads{"/proc/" + std::to_string(id) + "/task"};
  for (std::filesystem::directory_iterator at{threads, error}, end; !error && at != end;
       at.increment(error)) {
    std::ifstream in{at->path() / "schedstat"};  // a thread that has just ended has none
    std::uint64_t ran_ns = 0, waited_ns = 0;
    if (!(in >> ran_ns >> waited_ns)) continue;
    if (!all) all.emplace();
    *all += {static_cast<double>(ran_ns) / ns_per_s, static_cast<double>(waited_ns) / ns_per_s};
  }
  return all;
}

}  // namespace troupe::runtime
