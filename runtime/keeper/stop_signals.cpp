#include "runtime/keeper/stop_signals.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "messages/base/find_in.hpp"

namespace troupe::runtime {

namespace {

constexpr int fork_rounds = 3;  // looks for processes that were being forked

/// A process that was stopped gets SIGTERM when it is continued.
void ask_to_stop(const process_id& p) {
  if (signal_process(p, SIGTERM)) signal_process(p, SIGCONT);
}

std::string executable_of(pid_t pid) {
  char name[PATH_MAX];
  const auto n = ::readlink(fmt::format("/proc/{}/exe", pid).c_str(), name, sizeof name);
  return n > 0 ? std::string{name, static_cast<std::size_t>(n)} : std::string{};
}

bool is_shell(std::string_view file) {
  constexpr std::array<std::string_view, 12> shells{
      "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "busybox", "fish", "tcsh", "csh", "yash"};
  const auto name = file.substr(file.rfind('/') + 1);
  return std::ranges::find(shells, name.substr(0, name.find(' '))) != shells.end();
}

/// Started by Python's multiprocessing (`spawn`, `forkserver`), or by joblib's.
bool is_helper(pid_t pid) {
  const auto words = file_contents(fmt::format("/proc/{}/cmdline", pid));
  for (const auto* mark : {"from multiprocessing.", "--multiprocessing-fork", "loky.backend."})
    if (words.find(mark) != std::string::npos) return true;
  return false;
}

/// proc(5), `stat`: field 28, the address of the stack's beginning. Exec chooses it at random, and
/// a fork has its parent's.
std::uint64_t image_of(pid_t pid) {
  const auto text = file_contents(fmt::format("/proc/{}/stat", pid));
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return 0;
  std::istringstream fields{text.substr(end_of_name + 1)};
  std::string skipped;
  for (int field = 3; field < 28; ++field) fields >> skipped;
  std::uint64_t address = 0;
  fields >> address;
  return address;
}

/// `name`: SigIgn or SigCgt.
bool has_sigterm(const std::string& status, const char* name) {
  const auto at = status.find(name);
  if (at == std::string::npos) return false;
  const auto* digits = status.c_str() + at + std::string_view{name}.size() + 1;
  return ((std::strtoull(digits, nullptr, 16) >> (SIGTERM - 1)) & 1) != 0;
}

}  // namespace

stop_signals::traits stop_signals::traits_of(const process_id& p) {
  const auto status = file_contents(fmt::format("/proc/{}/status", p.pid));
  traits t;
  t.id = p;
  t.file = executable_of(p.pid);
  t.image = image_of(p.pid);
  t.helper = is_helper(p.pid);
  t.catches = has_sigterm(status, "SigCgt:");
  t.ignores = has_sigterm(status, "SigIgn:");
  return t;
}

bool stop_signals::is_fork(const traits& child, const traits& parent) {
  return child.image != 0 && child.image == parent.image && !child.file.empty() &&
         child.file == parent.file && !is_shell(child.file);
}

// Command lines do not tell a worker from a rank: launchers start ranks with their own command
// line.
bool stop_signals::is_worker(const traits& child, const traits& parent) {
  return !parent.ignores && (child.helper || is_fork(child, parent));
}

/// Is it a process that was being forked while its parent was found, and that no signal can have
/// caused? A fork is not completed once a signal waits for its parent, and one that neither catches
/// nor ignores SIGTERM starts nothing after it.
bool stop_signals::came_before(const descendant& d, pid_t self) const {
  if (d.parent != self) {
    const auto* parent = find_in(known_, d.parent);
    return parent && !parent->is_held() && !parent->catches && !parent->ignores;
  }
  return std::ranges::none_of(known_, [](const auto& k) {
    return (k.second.catches || k.second.ignores) && !is_alive(k.second.id);
  });
}

void stop_signals::send() {
  const auto self = ::getpid();
  std::vector<process_id> now;
  for (const auto& d : descendants_of(self)) {
    auto t = traits_of(d.id);
    if (const auto* parent = find_in(known_, d.parent))
      t.waits_for = is_worker(t, *parent) ? parent->id : parent->waits_for;
    if (t.is_held())
      held_.push_back({t.id, t.waits_for});
    else
      now.push_back(t.id);
    known_[d.id.pid] = std::move(t);
  }
  // At once, as launchers pass the signal on: whoever gets it twice should get both at a time.
  for (const auto& p : now) ask_to_stop(p);
  for (const auto& h : held_) signal_process(h.who, SIGCONT);  // its program may wait for it
  for (int round = 0; round < fork_rounds; ++round) {
    std::vector<traits> late;
    for (const auto& d : descendants_of(self))
      if (!known_.contains(d.id.pid) && came_before(d, self)) late.push_back(traits_of(d.id));
    if (late.empty()) return;
    for (auto& t : late) {
      ask_to_stop(t.id);
      known_[t.id.pid] = std::move(t);
    }
  }
}

void stop_signals::release(bool all) {
  std::vector<process_id> ended;
  const auto is_over = [&](const held& h) {
    if (all) return true;
    if (std::ranges::find(ended, h.waits_for) != ended.end()) return true;
    if (is_alive(h.waits_for)) return false;
    ended.push_back(h.waits_for);
    return true;
  };
  std::erase_if(held_, [&](const held& h) {
    const bool due = is_over(h);
    if (due) ask_to_stop(h.who);
    return due || !is_alive(h.who);
  });
  if (!ended.empty()) signal_forks_of(ended);
}

/// Workers that a program has started after it was asked to stop, as for another epoch.
void stop_signals::signal_forks_of(const std::vector<process_id>& ended) {
  for (const auto& d : descendants_of(::getpid())) {
    if (known_.contains(d.id.pid)) continue;
    auto t = traits_of(d.id);
    const bool left = std::ranges::any_of(
        ended, [&](const process_id& p) { return is_worker(t, known_.at(p.pid)); });
    if (left) ask_to_stop(t.id);
  }
}

}  // namespace troupe::runtime
