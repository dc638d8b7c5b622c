#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// Processors that this process may run on (its affinity); at least 1.
std::uint32_t allowed_processors();
/// As many of them as the quotas of its control groups pay for at a time, rounded down; at least 1.
std::uint32_t usable_processors();

/// The smallest quota of a process's control groups, in processors; none: unlimited, or unknown.
/// `groups`: /proc/self/cgroup; `mounted`: /sys/fs/cgroup. Versions 1 and 2.
std::optional<double> processor_quota(const std::filesystem::path& groups,
                                      const std::filesystem::path& mounted);

/// Refuses 0 and more threads than this process has processors; `what`: the option or key.
expected<void> check_threads(const char* what, std::uint64_t threads);

}  // namespace troupe::gpu
