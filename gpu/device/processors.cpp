#include "gpu/device/processors.hpp"

#include <sched.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <thread>

#include "gpu/files/control_groups.hpp"
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

std::optional<double> processor_quota(const fs::path& groups, const fs::path& mounted) {
  std::optional<double> smallest;
  for (const auto& group : control_groups(groups, mounted, "cpu"))
    if (const auto q = quota_of_group(group); q && (!smallest || *q < *smallest)) smallest = q;
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
