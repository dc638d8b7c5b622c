#include "runtime/process/process_group.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "messages/base/descriptor.hpp"
#include "messages/base/refuse.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/wait.hpp"

namespace troupe::runtime {
namespace {

namespace fs = std::filesystem;

// Process ids are reused, so an id alone identifies nothing. Everywhere here a process is its id
// and its start time (field 22 of /proc/PID/stat, in clock ticks since boot), and a record on disk
// has the boot's id as well: after a reboot both could match another process. Signals go through a
// pidfd, which refers to one process for ever.
struct process_state {
  char state = '?';
  pid_t parent = 0, group = 0;
  std::uint64_t started = 0;

  bool dead() const { return state == 'Z' || state == 'X'; }
};

// proc(5): the name is in parentheses and may contain anything, so fields count from the last one.
std::optional<process_state> state_of(pid_t pid) {
  const auto text = file_contents(fmt::format("/proc/{}/stat", pid));
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return {};
  std::istringstream fields{text.substr(end_of_name + 1)};
  process_state s;
  std::string skipped;
  fields >> s.state >> s.parent >> s.group;
  for (int field = 6; field < 22; ++field) fields >> skipped;
  if (!(fields >> s.started)) return {};
  return s;
}

// The environment at exec, which children inherit and setsid() does not change: the one mark that a
// daemon keeps.
bool has_token(pid_t pid, const std::string& token) {
  const auto wanted = fmt::format("{}={}", group_token_variable, token);
  const auto environment = file_contents(fmt::format("/proc/{}/environ", pid));
  for (std::size_t at = 0; at < environment.size();) {
    const auto end = std::min(environment.find('\0', at), environment.size());
    if (environment.compare(at, end - at, wanted) == 0) return true;
    at = end + 1;
  }
  return false;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (fs::directory_iterator it{"/proc", ignored}, end; !ignored && it != end;
       it.increment(ignored)) {
    const auto name = it->path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos)
      found.push_back(std::atoi(name.c_str()));
  }
  return found;
}

bool kill_exactly(pid_t pid, std::uint64_t started) {
  return signal_process({pid, started}, SIGKILL);
}

// One pass over /proc. A process that forks meanwhile escapes the pass and not the next one:
// callers repeat until nothing is left.
std::size_t kill_descendants_of(pid_t root) {
  std::size_t killed = 0;
  for (const auto& d : descendants_of(root)) killed += signal_process(d.id, SIGKILL);
  return killed;
}

std::string file_of(const std::string& directory, pid_t leader) {
  return fmt::format("{}/{}.group", directory, leader);
}

// Records of older releases have no keeper.
std::optional<process_group> read_record(const fs::path& path) {
  std::ifstream in{path};
  process_group g;
  if (!(in >> g.leader >> g.started >> g.boot >> g.token) || g.leader <= 1) return {};
  if (!(in >> g.keeper >> g.keeper_started) || g.keeper <= 1) g.keeper = 0;
  return g;
}

}  // namespace

/// A process may end while its file is being read: a read then fails with ESRCH, for which
/// std::ifstream's iterators throw.
std::string file_contents(const std::string& path) {
  std::string all;
  const descriptor fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (fd < 0) return all;
  char some[4096];
  for (ssize_t n = 0; (n = ::read(fd, some, sizeof some)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) all.append(some, static_cast<std::size_t>(n));
  return all;
}

process_id identify(pid_t pid) {
  const auto s = state_of(pid);
  return {pid, s ? s->started : 0};
}

// A zombie is dead: it runs nothing, and only its parent can remove it.
bool is_alive(const process_id& p) {
  const auto now = p.pid > 1 ? state_of(p.pid) : std::nullopt;
  return now && now->started == p.started && !now->dead();
}

// A pidfd refers to one process; its start time is checked once the pidfd is open.
bool signal_process(const process_id& p, int signal) {
  if (p.pid <= 1) return false;
  const descriptor fd{static_cast<int>(::syscall(SYS_pidfd_open, p.pid, 0))};
  if (fd < 0) return false;
  const bool same = is_alive(p);
  if (same) ::syscall(SYS_pidfd_send_signal, int{fd}, signal, nullptr, 0);
  return same;
}

std::vector<process_id> living_children(pid_t parent) {
  std::vector<process_id> found;
  for (const auto pid : all_processes())
    if (const auto s = state_of(pid); s && s->parent == parent && !s->dead())
      found.push_back({pid, s->started});
  return found;
}

std::vector<descendant> descendants_of(pid_t root) {
  std::multimap<pid_t, process_id> children;  // by parent
  for (const auto pid : all_processes())
    if (const auto s = state_of(pid)) children.emplace(s->parent, process_id{pid, s->started});
  std::vector<descendant> found;
  const auto add_children = [&](pid_t parent) {
    const auto [first, last] = children.equal_range(parent);
    for (auto it = first; it != last; ++it) found.push_back({it->second, parent});
  };
  add_children(root);
  for (std::size_t i = 0; i < found.size(); ++i) add_children(found[i].id.pid);
  return found;
}

std::optional<process_group> describe_group(pid_t leader, std::string token) {
  const auto s = state_of(leader);
  if (!s || s->dead()) return {};
  return process_group{leader, s->started, this_boot(), std::move(token), 0, 0};
}

std::string this_boot() {
  auto boot = file_contents("/proc/sys/kernel/random/boot_id");
  std::erase(boot, '\n');
  return boot;
}

std::string fresh_group_token() {
  std::uint64_t bits[2] = {};
  while (::getrandom(bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) continue;
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

std::size_t kill_members(const process_group& g) {
  if (g.boot != this_boot()) return 0;
  // While the leader exists, even as a zombie, its id is not reused.
  const auto leader = state_of(g.leader);
  const bool is_ours = leader && leader->started == g.started && leader->group == g.leader;
  std::size_t killed = 0;
  for (const auto pid : all_processes()) {
    if (pid == ::getpid()) continue;
    const auto s = state_of(pid);
    if (!s || s->dead() || s->started < g.started) continue;
    if ((is_ours && s->group == g.leader) || has_token(pid, g.token))
      killed += kill_exactly(pid, s->started);
  }
  return killed;
}

// Descendants by parentage first, while the keeper holds the tree together; then members by token.
// A stopped keeper is woken to notice the end.
std::size_t kill_kept(const process_group& g) {
  std::size_t killed = 0;
  const auto keeper = g.keeper > 1 ? state_of(g.keeper) : std::nullopt;
  if (keeper && keeper->started == g.keeper_started && g.boot == this_boot()) {
    killed += kill_descendants_of(g.keeper);
    signal_process({g.keeper, g.keeper_started}, SIGCONT);
  }
  return killed + kill_members(g);
}

std::size_t kill_descendants() {
  return kill_descendants_of(::getpid());
}

expected<void> record_group(const std::string& directory, const process_group& g) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  const auto path = file_of(directory, g.leader);
  const auto text = fmt::format("{} {} {} {} {} {}\n", g.leader, g.started, g.boot, g.token,
                                g.keeper, g.keeper_started);
  const descriptor fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return refuse(reason::kind::unavailable, "cannot write {}: {}", path, std::strerror(errno));
  return {};
}

void forget_group(const std::string& directory, const process_group& g) {
  std::error_code ignored;
  fs::remove(file_of(directory, g.leader), ignored);
}

// Programs of a node that was killed: their keepers normally end them at once, but may have been
// killed too. A record stays until its group is gone, so that the next start tries again.
std::vector<pid_t> reap_orphans(const std::string& directory, double limit_s) {
  std::vector<pid_t> killed;
  std::vector<fs::path> files;
  std::error_code ignored;
  for (fs::directory_iterator it{directory, ignored}, last; !ignored && it != last;
       it.increment(ignored))
    if (it->path().extension() == ".group") files.push_back(it->path());
  std::ranges::sort(files);
  for (const auto& file : files) {
    const auto g = read_record(file);
    const std::size_t alive = g ? kill_kept(*g) : 0;
    if (alive > 0) {
      killed.push_back(g->leader);
      log(log_level::warn, "node", "killed processes left by an earlier incarnation",
          {{"group", g->leader}, {"processes", alive}});
    }
    if (alive == 0 || wait_until([&] { return kill_kept(*g) == 0; }, limit_s))
      fs::remove(file, ignored);
  }
  return killed;
}

}  // namespace troupe::runtime
