#include "gpu/device/processors.hpp"

#include <sched.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <thread>

#include "gpu/files/kernel_file.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

/// The quota of one group: version 2 has "QUOTA PERIOD" in one file, version 1 two files; "max" and
/// -1 are no quota.
std::optional<double> quota_of_group(const fs::path& group) {
  double quota = -1, period = 0;
  auto both = kernel_file(group / "cpu.max");
  if (both.empty())
    both = kernel_file(group / "cpu.cfs_quota_us") + " " + kernel_file(group / "cpu.cfs_period_us");
  std::istringstream numbers{both};
  if (!(numbers >> quota >> period)) return {};
  if (!(quota > 0) || !(period > 0)) return {};
  return quota / period;
}

/// A line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; version 2 has no controllers there.
struct group_line {
  std::string controllers, path;
};
std::optional<group_line> parse_group(const std::string& line) {
  const auto first = line.find(':');
  const auto second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos) return {};
  return group_line{line.substr(first + 1, second - first - 1), line.substr(second + 1)};
}

bool has_controller(const std::string& controllers, const std::string& name) {
  std::istringstream all{controllers};
  for (std::string each; std::getline(all, each, ',');)
    if (each == name) return true;
  return false;
}

}  // namespace

// A set of processors may be larger than the fixed one of the C library: it grows until the kernel
// accepts it.
std::uint32_t allowed_processors() {
  for (int wide = 1024; wide <= 1 << 20; wide *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set{
        CPU_ALLOC(static_cast<std::size_t>(wide)), [](cpu_set_t* s) { CPU_FREE(s); }};
    const auto bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(wide));
    if (set && ::sched_getaffinity(0, bytes, set.get()) == 0)
      return static_cast<std::uint32_t>(std::max(1, CPU_COUNT_S(bytes, set.get())));
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

// A quota of a group holds for all groups in it. In a container the path may be the host's, which
// does not exist there: its own group is then what is mounted.
std::optional<double> processor_quota(const fs::path& groups, const fs::path& mounted) {
  std::optional<double> smallest;
  const auto look = [&](const fs::path& group) {
    const auto q = quota_of_group(group);
    if (q && (!smallest || *q < *smallest)) smallest = q;
  };
  std::istringstream lines{kernel_file(groups)};
  for (std::string line; std::getline(lines, line);) {
    const auto g = parse_group(line);
    if (!g || !(g->controllers.empty() || has_controller(g->controllers, "cpu"))) continue;
    const auto root = g->controllers.empty() ? mounted : mounted / g->controllers;
    auto path = fs::path{g->path}.lexically_normal().relative_path();
    for (; !path.empty() && path != "."; path = path.parent_path()) look(root / path);
    look(root);
    if (!g->controllers.empty()) look(mounted / "cpu");
  }
  return smallest;
}

std::uint32_t usable_processors() {
  const auto allowed = allowed_processors();
  const auto quota = processor_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  if (!quota || *quota >= allowed) return allowed;
  return std::max(1u, static_cast<std::uint32_t>(*quota));
}

expected<void> check_threads(const char* what, std::uint64_t threads) {
  const auto allowed = allowed_processors();
  if (threads >= 1 && threads <= allowed) return {};
  return refuse(reason::kind::invalid,
                "{}: found {}, expected 1 to {}: this process may use {} processor{}", what,
                threads, allowed, allowed, allowed == 1 ? "" : "s");
}

}  // namespace troupe::gpu
