#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace troupe::gpu {

/// The folders of the control groups that limit this process in what a controller ("cpu", "memory")
/// counts: its own group's and all around it, in version 2 and 1. `groups`: /proc/self/cgroup;
/// `mounted`: /sys/fs/cgroup. Not all of them need exist: in a container a path may be the host's,
/// and its own group is then what is mounted.
std::vector<std::filesystem::path> control_groups(const std::filesystem::path& groups,
                                                  const std::filesystem::path& mounted,
                                                  std::string_view controller);

}  // namespace troupe::gpu
