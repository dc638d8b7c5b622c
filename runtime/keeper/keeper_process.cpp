#include "runtime/keeper/keeper_process.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "messages/base/time.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/keeper/starters.hpp"
#include "runtime/keeper/stop_signals.hpp"
#include "runtime/process/process_group.hpp"

extern char** environ;

// Processes, from the node down:
//
// node -> guard -> server -> keeper (one a program) -> program and its descendants
//
// The guard and the server are forked while the program is small and has one thread
// (serve_keepers); later a fork would copy a node's large memory map, and its locks in unknown
// states. The guard restarts the server if that is killed. A keeper does one thing, allocates
// little, and depends on nothing of the node: it must kill the program when the node hangs, is
// stopped or dies.
//
// Rules for a program's start, so that it never runs twice: the permission (an eventfd with the
// value 1) is taken by the keeper that starts it, or by the owner that gives up; whichever comes
// second gets nothing.
namespace troupe::runtime {

namespace {

// Workers whose program has not ended are asked to stop that long before SIGKILL, or in this part
// of the grace.
constexpr double workers_before_s = 5, workers_part = 4;
constexpr double look_again_s = 0.05;  // for the end of a program whose workers are held back

/// The parent of one program and the subreaper of its descendants.
/// As the subreaper it becomes the parent of every orphan among the descendants, so daemons that
/// fork twice stay within reach, and waitpid() reports their end.
class keeper {
 public:
  keeper(int control, int permission, keeper_request r)
      : control_{control}, permission_{permission}, request_{std::move(r)} {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    ::signal(SIGCHLD, SIG_DFL);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    children_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    run_at_once();
  }

  // Order: report that this process lives, check the lease and the owner, take the permission,
  // start. A lease that ends in between is noticed by the loop.
  void run() {
    send_event({.what = keeper_event::begun, .keeper = me_.pid, .keeper_ticks = me_.started});
    // The owner may have been stopped between its decision and this process' start.
    if (clock_.now_s() >= request_.until_s) return notify(keeper_event::lease_expired);
    if (owner_is_gone() || !take_permission(permission_)) return;
    if (!launch()) return notify(keeper_event::not_started);
    while (true) {
      check_limits();
      if (!reap()) break;
      if (killing_) kill_descendants();  // reads all of /proc, so only when needed
      wait();
    }
    if (report_.ends[0] >= 0) read_program();
    forget_group(request_.records, group_);
    notify(failed_    ? keeper_event::not_started
           : expired_ ? keeper_event::lease_expired
                      : keeper_event::exited);
  }

 private:
  /// Real-time priority, if this user may have it: when a lease expires, another node may soon run
  /// the job, however busy this machine is. The program itself starts with the usual priority.
  static void run_at_once() {
    const sched_param lowest{::sched_get_priority_min(SCHED_RR)};
    ::sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &lowest);
  }

  // The child waits for a byte until its group is on record: a program that no process could find
  // again must not run. It reports a failed start through a pipe that a successful exec closes.
  bool launch() {
    const program_plan plan{request_.program, request_.token, program_plan::privileges::plain};
    pipe_ends go;
    failure_ = {start_failure::step::fork, 0};
    const bool open = go.open() && report_.open();
    const auto child = open ? ::fork() : -1;
    if (child == 0) {
      go.ends[1].close();
      plan.become(go.ends[0], report_.ends[1]);
    }
    failure_.why = errno;
    if (child < 0) return false;
    report_.ends[1].close();
    go.ends[0].close();
    ::setpgid(child, child);  // the child does the same: whichever is first
    group_ = describe_group(child, request_.token)
                 .value_or(process_group{child, 0, this_boot(), request_.token, 0, 0});
    group_.keeper = me_.pid;
    group_.keeper_started = me_.started;
    // Without a record, the program's processes could not be found if this keeper were killed.
    if (!record_group(request_.records, group_)) {
      failure_ = {start_failure::step::group, errno};
      failed_ = killing_ = true;
      return true;
    }
    send_event({.leader = group_.leader, .leader_ticks = group_.started});
    go.write_one();
    return true;
  }

  // The kernel closes the owner's end of the socket with its process, however that ends.
  bool owner_is_gone() const {
    pollfd owner{control_, 0, 0};
    return ::poll(&owner, 1, 0) > 0 && (owner.revents & POLLHUP) != 0;
  }

  // The end of the lease and the end of a grace are times, not timers: after a suspension of the
  // machine both may have passed.
  void check_limits() {
    const double now_s = clock_.now_s();
    if (now_s >= request_.until_s && !killing_) {
      expired_ = !over_;
      killing_ = true;
    }
    if (now_s >= kill_at_s_) killing_ = true;
    if (killing_) return;
    if (now_s >= signal_at_s_) {
      signal_at_s_ = never;
      const double left_s = kill_at_s_ - now_s;
      all_at_s_ = kill_at_s_ - std::min(workers_before_s, left_s / workers_part);
      signals_.send();
    }
    if (signals_.holds_some()) signals_.release(now_s >= all_at_s_);
  }

  /// False: there is no child, and so no descendant.
  bool reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) != 0;) {
      if (pid < 0) return errno != ECHILD;
      if (pid != group_.leader) continue;
      by_signal_ = WIFSIGNALED(status);
      status_ = by_signal_ ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      over_ = true;
      // Processes that a program leaves behind are killed; if it was asked to stop, it has the
      // whole grace.
      if (!asked_) killing_ = true;
      if (signal_at_s_ != never) signal_at_s_ = clock_.now_s();
    }
    return true;
  }

  void wait() {
    // Timers stop while the machine is suspended, but leases do not: wait at most a second.
    double wait_s = std::min({1.0, request_.until_s - clock_.now_s(), kill_at_s_ - clock_.now_s(),
                              signal_at_s_ - clock_.now_s()});
    if (signals_.holds_some()) wait_s = std::min(wait_s, look_again_s);
    if (killing_) wait_s = again_s_ = std::min(0.5, 2 * again_s_);
    pollfd of[] = {{children_, POLLIN, 0}, {control_, POLLIN, 0}, {report_.ends[0], POLLIN, 0}};
    ::poll(of, 3, static_cast<int>(std::max(0.0, wait_s) * 1e3) + 1);
    signalfd_siginfo ignored{};
    while (::read(children_, &ignored, sizeof ignored) > 0) continue;
    if (of[1].revents != 0) read_owner();
    if (of[2].revents != 0) read_program();
  }

  void read_owner() {
    keeper_command c;
    ssize_t n = 0;
    while ((n = ::recv(control_, &c, sizeof c, MSG_DONTWAIT)) == static_cast<ssize_t>(sizeof c)) {
      if (c.what == keeper_command::renew) request_.until_s = c.value;
      if (c.what == keeper_command::kill) killing_ = true;
      if (c.what != keeper_command::terminate || kill_at_s_ != never) continue;
      kill_at_s_ = clock_.now_s() + c.value;
      signal_at_s_ = clock_.now_s() + c.signal_after_s;
      asked_ = !leader_ended();
      check_limits();
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    // The owner has died or closed the connection.
    killing_ = true;
    ::close(std::exchange(control_, -1));
  }

  /// Has the program ended by itself, whether or not that has been noticed? What it does after
  /// SIGTERM is an answer to that.
  bool leader_ended() const {
    siginfo_t end{};
    return over_ || (::waitid(P_PID, static_cast<id_t>(group_.leader), &end,
                              WEXITED | WNOHANG | WNOWAIT) == 0 &&
                     end.si_pid == group_.leader);
  }

  void read_program() {
    start_failure f;
    if (::read(report_.ends[0], &f, sizeof f) == static_cast<ssize_t>(sizeof f)) {
      failed_ = true;
      failure_ = f;
    }
    report_.ends[0].close();
  }

  void notify(keeper_event::kind what) const {
    send_event({.what = what,
                .status = status_,
                .asked = asked_,
                .by_signal = by_signal_,
                .failure = failure_});
  }

  void send_event(const keeper_event& e) const { ::send(control_, &e, sizeof e, MSG_NOSIGNAL); }

  int control_, permission_;
  keeper_request request_;
  process_id me_ = identify(::getpid());
  real_clock clock_;
  int children_ = -1;
  pipe_ends report_;
  process_group group_;
  start_failure failure_;
  int status_ = 0;
  bool by_signal_ = false;
  double kill_at_s_ = never, signal_at_s_ = never, again_s_ = 0.005;
  double all_at_s_ = never;  // workers get SIGTERM, whether or not their program has ended
  stop_signals signals_;
  bool failed_ = false, expired_ = false, killing_ = false, over_ = false, asked_ = false;
};

/// Overwrites the group token in the visible environment, if this process inherited one: it must
/// survive the end of that group, whose members are found by their token.
void leave_group() {
  const auto name = std::string{group_token_variable} + '=';
  for (char** e = environ; *e != nullptr; ++e)
    if (std::strncmp(*e, name.c_str(), name.size()) == 0)
      std::memset(*e + name.size(), 'x', std::strlen(*e) - name.size());
}

void append(std::string& to, const std::string& text) {
  const std::uint64_t size = text.size();
  to.append(reinterpret_cast<const char*>(&size), sizeof size);
  to += text;
}

// The request is a sequence of texts, each after its length in 8 bytes.
bool take(std::string_view& from, std::string& to) {
  std::uint64_t size = 0;
  if (from.size() < sizeof size) return false;
  std::memcpy(&size, from.data(), sizeof size);
  from.remove_prefix(sizeof size);
  if (from.size() < size) return false;
  to.assign(from.substr(0, size));
  from.remove_prefix(size);
  return true;
}

/// Receives three descriptors; false: the owner has died.
bool receive(int control, int (&three)[3]) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof three)] = {};
  msghdr m{};
  m.msg_iov = &data, m.msg_iovlen = 1;
  m.msg_control = room, m.msg_controllen = sizeof room;
  ssize_t n = 0;
  while ((n = ::recvmsg(control, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) continue;
  const auto* c = CMSG_FIRSTHDR(&m);
  if (n != 1 || c == nullptr || c->cmsg_len != CMSG_LEN(sizeof three)) return false;
  std::memcpy(three, CMSG_DATA(c), sizeof three);
  return true;
}

/// Returns in a child that is to serve. That one may be killed, by the kernel for memory or by a
/// program of the same user: the next takes its place, and receives what the owner sends to the
/// same socket. Ends with a child that ends by itself, as its owner has.
void restart_when_killed(int control, const std::string& records) {
  for (;;) {
    const auto server = ::fork();
    if (server == 0) return;
    if (server < 0) {
      ::usleep(100'000);  // the machine has no process left
      continue;
    }
    record_starters(records, {identify(::getpid()), identify(server)});
    int status = 0;
    while (::waitpid(server, &status, 0) < 0 && errno == EINTR) continue;
    pollfd owner{control, 0, 0};
    if (!WIFSIGNALED(status) || (::poll(&owner, 1, 0) > 0 && (owner.revents & POLLHUP) != 0))
      ::_exit(0);
  }
}

}  // namespace

descriptor make_permission() {
  return descriptor{::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
}

bool take_permission(int permission) {
  eventfd_t count = 0;
  return ::eventfd_read(permission, &count) == 0;
}

// In a memory file and not in the message itself: command lines may exceed the size of a message.
descriptor keeper_request::write() const {
  std::string all;
  append(all, std::string{reinterpret_cast<const char*>(&until_s), sizeof until_s});
  for (const auto* text : {&token, &records, &program.directory, &program.output})
    append(all, *text);
  append(all, std::to_string(program.command.size()));
  for (const auto& word : program.command) append(all, word);
  for (const auto& [name, value] : program.environment) append(all, name), append(all, value);
  descriptor file{::memfd_create("program", MFD_CLOEXEC)};
  for (std::size_t at = 0; file >= 0 && at < all.size();) {
    const auto n = ::write(file, all.data() + at, all.size() - at);
    if (n < 0) return {};
    at += static_cast<std::size_t>(n);
  }
  return file;
}

bool keeper_request::read(int file, keeper_request& to) {
  std::string all;
  char some[4096];
  ::lseek(file, 0, SEEK_SET);
  for (ssize_t n = 0; (n = ::read(file, some, sizeof some)) > 0;)
    all.append(some, static_cast<std::size_t>(n));
  std::string_view rest{all};
  std::string until, words;
  if (!take(rest, until) || until.size() != sizeof to.until_s) return false;
  std::memcpy(&to.until_s, until.data(), sizeof to.until_s);
  for (auto* text : {&to.token, &to.records, &to.program.directory, &to.program.output})
    if (!take(rest, *text)) return false;
  if (!take(rest, words)) return false;
  to.program.command.resize(std::stoul(words));
  for (auto& word : to.program.command)
    if (!take(rest, word)) return false;
  while (!rest.empty()) {
    auto& [name, value] = to.program.environment.emplace_back();
    if (!take(rest, name) || !take(rest, value)) return false;
  }
  return true;
}

// Runs in the forked child. It keeps no descriptor but the socket and the lock: an inherited
// listening socket would stay bound after the node's end. A session of its own keeps terminal
// signals away.
void serve_keepers(int control, int lock, const std::string& records) {
  const auto low = static_cast<unsigned>(std::min(control, lock)),
             high = static_cast<unsigned>(std::max(control, lock));
  if (lock >= 0 && low > 3) ::close_range(3, low - 1, 0);
  if (high > low + 1) ::close_range(lock >= 0 ? low + 1 : 3, high - 1, 0);
  ::close_range(high + 1, ~0u, 0);
  ::setsid();
  ::prctl(PR_SET_NAME, "troupe-keeper");
  leave_group();
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(s, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  restart_when_killed(control, records);
  ::signal(SIGCHLD, SIG_IGN);
  int three[3] = {-1, -1, -1};
  while (receive(control, three)) {
    const auto child = ::fork();
    if (child == 0) {
      ::close(control);
      keeper_request r;
      const bool whole = keeper_request::read(three[1], r);
      ::close(three[1]);
      if (whole) keeper{three[0], three[2], std::move(r)}.run();
      ::_exit(0);
    }
    if (child < 0) {
      keeper_event e;
      e.what = keeper_event::not_started;
      e.failure.why = errno;
      ::send(three[0], &e, sizeof e, MSG_NOSIGNAL);
    }
    for (const int d : three) ::close(d);
  }
  ::_exit(0);
}

}  // namespace troupe::runtime
