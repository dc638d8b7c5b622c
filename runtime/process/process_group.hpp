#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"

// Finds the processes of a group that this program started, also after a restart of this program,
// and also if process ids have been reused.

namespace troupe::runtime {

/// Environment variable that every process of a group inherits; its value is the group's token.
inline constexpr const char* group_token_variable = "TROUPE_GROUP";

/// A process, even once its number is another one's.
struct process_id {
  pid_t pid = 0;
  std::uint64_t started = 0;  // in kernel ticks since boot

  bool operator==(const process_id&) const = default;
};

/// Nothing but the number if there is no such process.
process_id identify(pid_t pid);
/// It exists, and is no zombie.
bool is_alive(const process_id& p);
/// False: it is not alive.
bool signal_process(const process_id& p, int signal);
std::vector<process_id> living_children(pid_t parent);

/// A process below another one.
struct descendant {
  process_id id;
  pid_t parent = 0;
};

/// All of them, parents before their children. One that is being forked may be missing.
std::vector<descendant> descendants_of(pid_t root);

/// The readable part of a file of /proc, whose process may end meanwhile.
std::string file_contents(const std::string& path);

/// Identifies a group.
struct process_group {
  pid_t leader = 0;                  // also the group's id
  std::uint64_t started = 0;         // the leader's start time, in kernel ticks since boot
  std::string boot;                  // the boot's id
  std::string token;                 // random; in the environment of all its processes
  pid_t keeper = 0;                  // the subreaper of all its processes; 0: none,
  std::uint64_t keeper_started = 0;  // and its start time
};

/// The leader's start time and the boot id; nothing if there is no such process, or only a zombie.
std::optional<process_group> describe_group(pid_t leader, std::string token);

/// A unique token.
std::string fresh_group_token();

/// The id of this boot of the machine.
std::string this_boot();

/// Sends SIGKILL to every living process of the group: those with the group's id, if its leader is
/// the one that was started, and those with its token, even if they have left the group. Never
/// kills a process that reuses an old id. Returns how many there were.
std::size_t kill_members(const process_group& g);

/// The same, and to all descendants of its keeper, which is sent SIGCONT: it may have been stopped.
std::size_t kill_kept(const process_group& g);

/// Sends SIGKILL to all descendants of this process, which must have set PR_SET_CHILD_SUBREAPER so
/// that none can escape. Returns how many there were.
std::size_t kill_descendants();

/// Writes the group's file to a directory, so that the next incarnation finds it.
expected<void> record_group(const std::string& directory, const process_group& g);
void forget_group(const std::string& directory, const process_group& g);

/// Kills the groups that an earlier incarnation left: every group with a file in the directory,
/// until none of its processes is alive; then removes the file. Waits at most `limit_s` per group.
/// Returns the leaders of the groups that had living processes.
std::vector<pid_t> reap_orphans(const std::string& directory, double limit_s = 10);

}  // namespace troupe::runtime
