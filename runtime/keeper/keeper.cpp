#include "runtime/keeper/keeper.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/keeper/keeper_process.hpp"

namespace troupe::runtime {

// The owner's side. Every promise of keeper.hpp holds although each process may be stopped
// (SIGSTOP, a debugger, a machine without memory) or killed at any moment:
//
//   a keeper that does not begin    is woken after a second; after five its program is withdrawn
//   a keeper that does not kill     this process kills the descendants itself: enforce()
//   a keeper that was killed        the program has died with it (PR_SET_PDEATHSIG); its
//                                   descendants are found by their token
//   this process was killed         the keeper sees the closed socket and kills

namespace {

constexpr double shutdown_wait_s = 5;  // limit for the destructor
constexpr double keeper_wait_s = 1;    // for a keeper to kill
constexpr double lease_wait_s = 0.25;  // the same at the end of a lease, which it knows of before
constexpr double wake_after_s = 1;     // for a keeper to begin, before its starters are woken,
constexpr double give_up_after_s = 5;  // and before it is replaced

auto cannot(const char* what) {
  return refuse(reason::kind::unavailable, "{}: {}", what, std::strerror(errno));
}

/// Two that are connected, of a type that keeps each message whole; -1: there is none.
std::pair<descriptor, descriptor> connected_sockets() {
  int ends[2] = {-1, -1};
  ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
  return {descriptor{ends[0]}, descriptor{ends[1]}};
}

/// Passes three descriptors over a socket.
bool send_three(int control, const int (&three)[3]) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof three)] = {};
  msghdr m{};
  m.msg_iov = &data, m.msg_iovlen = 1;
  m.msg_control = room, m.msg_controllen = sizeof room;
  auto* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof three);
  std::memcpy(CMSG_DATA(c), three, sizeof three);
  return ::sendmsg(control, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

void send_command(int control, keeper_command::kind what, double value, double signal_after_s = 0) {
  const keeper_command c{what, value, signal_after_s};
  ::send(control, &c, sizeof c, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

// -- the server
// ----------------------------------------------------------------------------------------

expected<std::unique_ptr<keeper_server>> keeper_server::start(std::string records, int lock) {
  auto [mine, theirs] = connected_sockets();
  if (mine < 0) return cannot("cannot create a socket for keepers");
  const auto child = ::fork();
  if (child == 0) serve_keepers(theirs, lock, records);
  if (child < 0) return cannot("cannot start the keeper process");
  return std::unique_ptr<keeper_server>{
      new keeper_server{std::move(mine), {std::move(records), identify(child)}}};
}

bool keeper_server::alive() const {
  pollfd server{control_, 0, 0};
  return ::poll(&server, 1, 0) == 0 || (server.revents & POLLHUP) == 0;
}

// Closing the socket ends the server and the guard, which may be stopped: they are woken first, and
// killed if that does not help.
keeper_server::~keeper_server() {
  const auto all = where_.find();
  control_.close();
  all.wake();
  bool reaped = false;
  const auto over = [&] {
    reaped = reaped || ::waitpid(where_.guard.pid, nullptr, WNOHANG) != 0;
    return reaped && !all.alive();
  };
  if (!wait_until(over, wake_after_s)) {
    where_.find().end();
    wait_until(over, wake_after_s);
  }
  forget_starters(where_.records);
}

// The result owns its end of the socket before the request is sent: whatever happens next, its
// destructor withdraws the permission.
expected<std::unique_ptr<kept_program>> keeper_server::run(const process_options& o,
                                                           double until_s) {
  if (o.command.empty()) return refuse(reason::kind::invalid, "an empty command cannot be run");
  keeper_request r{o, fresh_group_token(), where_.records, until_s};
  auto permission = make_permission();
  if (permission < 0) return cannot("cannot create a descriptor for a program's keeper");
  auto [mine, theirs] = connected_sockets();
  if (mine < 0) return cannot("cannot create a socket for a program's keeper");
  std::unique_ptr<kept_program> result{
      new kept_program{std::move(mine), std::move(permission), o, r.token, until_s, where_}};
  const auto file = r.write();
  if (file < 0 || !send_three(control_, {theirs, file, result->permission_}))
    return cannot("cannot start a program's keeper");
  return result;
}

// -- a program
// -----------------------------------------------------------------------------------------

kept_program::kept_program(descriptor control, descriptor permission, process_options o,
                           std::string token, double until_s, keeper_server_place server)
    : control_{std::move(control)},
      permission_{std::move(permission)},
      options_{std::move(o)},
      group_{0, 0, this_boot(), std::move(token), 0, 0},
      server_{std::move(server)},
      asked_s_{real_clock{}.now_s()},
      wake_s_{asked_s_ + wake_after_s},
      until_s_{until_s} {}

kept_program::~kept_program() {
  if (end_) return;
  kill();
  wait_until([this] { return poll().has_value(); }, shutdown_wait_s);
}

void kept_program::renew(double until_s) {
  until_s_ = until_s;
  send_command(control_, keeper_command::renew, until_s);
}

// Only one side ever takes the permission: after this, no keeper starts the program.
bool kept_program::withdraw() const {
  return take_permission(permission_);
}

void kept_program::terminate(double grace_s, double signal_after_s) {
  if (withdraw()) {
    end_ = {kept_end::how::exited, 128 + SIGTERM, {}, true};
    return;
  }
  kill_by_s_ = std::min(kill_by_s_, real_clock{}.now_s() + grace_s + keeper_wait_s);
  send_command(control_, keeper_command::terminate, grace_s, signal_after_s);
}

void kept_program::kill() {
  if (withdraw()) {
    end_ = {kept_end::how::exited, 128 + SIGKILL, {}};
    return;
  }
  kill_by_s_ = std::min(kill_by_s_, real_clock{}.now_s() + keeper_wait_s);
  send_command(control_, keeper_command::kill, 0);
}

// The keeper knows both times as well and has a head start of keeper_wait_s or lease_wait_s, so
// this happens only when it is stopped or starved.
void kept_program::enforce() {
  const double now_s = real_clock{}.now_s();
  const bool due = now_s >= until_s_ + lease_wait_s;
  if (due && withdraw()) {
    end_ = {kept_end::how::lease_expired, 128 + SIGKILL, {}};
    return;
  }
  // A stopped keeper does not notice the program's end.
  if (started_ && !is_alive({group_.leader, group_.started}))
    signal_process({group_.keeper, group_.keeper_started}, SIGCONT);
  if (!due && now_s < kill_by_s_) return;
  enforced_ = true;
  expired_ = expired_ || due;
  kill_kept(group_);
}

// A machine that thrashes may need seconds to fork, so the first measure is the mildest: SIGCONT.
void kept_program::see_to_start() {
  const double now_s = real_clock{}.now_s();
  if (now_s < wake_s_) return;
  wake_s_ = now_s + wake_after_s;
  if (begun_) {
    signal_process({group_.keeper, group_.keeper_started}, SIGCONT);
    return;
  }
  log(log_level::warn, "node", "woke the processes that start keepers: nothing was started",
      {{"seconds", now_s - asked_s_}});
  const auto them = server_.find();
  them.wake();
  if (now_s < asked_s_ + give_up_after_s || !withdraw()) return;
  log(log_level::warn, "node", "killed the process that starts keepers, which hung", {});
  them.replace_server();
  end_ = {kept_end::how::no_room, 127,
          fmt::format("the process that starts keepers did nothing for {:g} s", give_up_after_s)};
}

void kept_program::receive(const keeper_event& e) {
  using how = kept_end::how;
  if (e.what == keeper_event::begun) {
    begun_ = true;
    group_.keeper = e.keeper;
    group_.keeper_started = e.keeper_ticks;
  } else if (e.what == keeper_event::started) {
    started_ = true;
    group_.leader = e.leader;
    group_.started = e.leader_ticks;
  } else if (e.what == keeper_event::not_started) {
    using step = start_failure::step;
    // The output's file is in the node's directory.
    const auto at = e.failure.where;
    const bool mine = at == step::fork || at == step::group || at == step::output;
    end_ = {mine ? how::no_room : how::not_started, exit_status_of(e.failure),
            describe(e.failure, options_)};
  } else if (e.what == keeper_event::exited && expired_) {
    end_ = {how::lease_expired, e.status, {}};
  } else {
    end_ = {e.what == keeper_event::exited ? how::exited : how::lease_expired,
            e.status,
            {},
            e.asked || enforced_,
            e.by_signal};
  }
}

// Events come in order, and the last one says how the program ended. Without a keeper the end is
// derived: no descendant is alive any more.
std::optional<kept_end> kept_program::poll() {
  keeper_event e;
  while (!end_ && !keeper_gone_) {
    const auto n = ::recv(control_, &e, sizeof e, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    // The keeper ended with unread commands from us; its own last event can still be received.
    if (n < 0 && errno == ECONNRESET) continue;
    if (n != static_cast<ssize_t>(sizeof e))
      keeper_gone_ = true;
    else
      receive(e);
  }
  if (!end_ && !keeper_gone_) enforce();
  if (!end_ && !keeper_gone_ && !started_) see_to_start();
  if (!end_ && keeper_gone_ && withdraw())
    end_ = {kept_end::how::no_room, 127, "the process that was to start it was killed"};
  // The keeper's child died with it; that child's descendants are found by their token.
  if (keeper_gone_ && !end_ && kill_members(group_) == 0)
    end_ = {kept_end::how::lost, 128 + 9, "the program's keeper was killed"};
  return end_;
}

}  // namespace troupe::runtime
