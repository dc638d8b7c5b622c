#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/reason.hpp"

// Who belongs to a group of processes that this program started, also after this program was
// started again, and also where numbers of processes have been used again.

namespace troupe::runtime {

/// The variable that every process of a group inherits; its value is the group's token.
inline constexpr const char* group_token_variable = "TROUPE_GROUP";

/// A group as it was when it started.
struct process_group {
  pid_t leader = 0;           // and the group's number
  std::uint64_t started = 0;  // the leader's start, in the kernel's ticks since boot
  std::string boot;           // which boot
  std::string token;          // random; in the environment of everything that it starts
};

/// The leader's start time and this boot; nothing if there is no such process, or a dead one.
std::optional<process_group> describe_group(pid_t leader, std::string token);

/// A token that no other group has.
std::string fresh_group_token();

/// Which boot of the machine this is.
std::string this_boot();

/// Sends SIGKILL to every process that belongs to the group and is not dead yet: those with the
/// group's number while its leader is the one that was started, and those with its token, even if
/// they have left the group. Never touches a process that only happens to have an old number.
/// Returns how many there were.
std::size_t kill_members(const process_group& g);

/// Sends SIGKILL to everything that this process has started, and that those have started, however
/// they have tried to leave: with PR_SET_CHILD_SUBREAPER they cannot. Returns how many there were.
std::size_t kill_descendants();

/// The group's file in a directory, so that the next incarnation finds it.
expected<void> record_group(const std::string& directory, const process_group& g);
void forget_group(const std::string& directory, const process_group& g);

/// Kills what an earlier incarnation left: every group with a file in the directory, until nobody
/// of it is alive, and then removes the file. Waits for a group's dying for `limit_s` at most.
/// Returns the leaders of the groups of which something had to be killed.
std::vector<pid_t> reap_orphans(const std::string& directory, double limit_s = 10);

}  // namespace troupe::runtime
