#include "runtime/process/keeper.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "runtime/host/real_clock.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/keeper_process.hpp"

namespace troupe::runtime {

namespace {

constexpr double shutdown_wait_s = 5;  // limit for the destructor
constexpr double keeper_wait_s = 1;    // for a keeper to kill
constexpr double lease_wait_s = 0.25;  // the same at the end of a lease, which it knows of before

auto cannot(const char* what) {
  return refuse(reason::kind::unavailable, fmt::format("{}: {}", what, std::strerror(errno)));
}

/// Passes two descriptors over a Unix socket.
bool send_two(int control, int first, int second) {
  const int two[2] = {first, second};
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof two)] = {};
  msghdr m{};
  m.msg_iov = &data, m.msg_iovlen = 1;
  m.msg_control = room, m.msg_controllen = sizeof room;
  auto* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof two);
  std::memcpy(CMSG_DATA(c), two, sizeof two);
  return ::sendmsg(control, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

void send_command(int control, keeper_command::kind what, double value) {
  const keeper_command c{what, value};
  ::send(control, &c, sizeof c, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

// -- the server
// ----------------------------------------------------------------------------------------

expected<std::unique_ptr<keeper_server>> keeper_server::start(std::string records, int lock) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return cannot("cannot create a socket for keepers");
  const auto child = ::fork();
  if (child == 0) serve_keepers(ends[1], lock);
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return cannot("cannot start the keeper process");
  }
  return std::unique_ptr<keeper_server>{new keeper_server{ends[0], child, std::move(records)}};
}

bool keeper_server::alive() const {
  pollfd server{control_, 0, 0};
  return ::poll(&server, 1, 0) == 0 || (server.revents & POLLHUP) == 0;
}

keeper_server::~keeper_server() {
  ::close(control_);
  ::waitpid(process_, nullptr, 0);
}

expected<std::unique_ptr<kept_program>> keeper_server::run(const process_options& o,
                                                           double until_s) {
  if (o.command.empty()) return refuse(reason::kind::invalid, "an empty command cannot be run");
  keeper_request r{o, fresh_group_token(), records_, until_s};
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return cannot("cannot create a socket for a program's keeper");
  std::unique_ptr<kept_program> result{new kept_program{ends[0], o, r.token, until_s}};
  const int file = r.write();
  const bool sent = file >= 0 && send_two(control_, ends[1], file);
  const int why = errno;
  if (file >= 0) ::close(file);
  ::close(ends[1]);
  errno = why;
  if (!sent) return cannot("cannot start a program's keeper");
  return result;
}

// -- a program
// -----------------------------------------------------------------------------------------

kept_program::kept_program(int control, process_options o, std::string token, double until_s)
    : control_{control},
      options_{std::move(o)},
      group_{0, 0, this_boot(), std::move(token), 0, 0},
      until_s_{until_s} {}

kept_program::~kept_program() {
  if (!end_) {
    kill();
    wait_until([this] { return poll().has_value(); }, shutdown_wait_s);
  }
  ::close(control_);
}

void kept_program::renew(double until_s) {
  until_s_ = until_s;
  send_command(control_, keeper_command::renew, until_s);
}

void kept_program::terminate(double grace_s) {
  kill_by_s_ = std::min(kill_by_s_, real_clock{}.now_s() + grace_s + keeper_wait_s);
  send_command(control_, keeper_command::terminate, grace_s);
}

void kept_program::kill() {
  kill_by_s_ = std::min(kill_by_s_, real_clock{}.now_s() + keeper_wait_s);
  send_command(control_, keeper_command::kill, 0);
}

void kept_program::enforce() {
  const double now_s = real_clock{}.now_s();
  const bool due = now_s >= until_s_ + lease_wait_s;
  if (!due && now_s < kill_by_s_) return;
  enforced_ = true;
  expired_ = expired_ || due;
  kill_kept(group_);
}

std::optional<kept_end> kept_program::poll() {
  keeper_event e;
  while (!end_ && !keeper_gone_) {
    const auto n = ::recv(control_, &e, sizeof e, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    // The keeper ended with unread commands from us; its own last event can still be received.
    if (n < 0 && errno == ECONNRESET) continue;
    if (n != static_cast<ssize_t>(sizeof e)) {
      keeper_gone_ = true;
    } else if (e.what == keeper_event::started) {
      group_.leader = e.leader;
      group_.started = e.leader_ticks;
      group_.keeper = e.keeper;
      group_.keeper_started = e.keeper_ticks;
    } else if (e.what == keeper_event::not_started) {
      using step = start_failure::step;
      const bool mine = e.failure.where == step::fork || e.failure.where == step::group;
      end_ = {mine ? kept_end::how::no_room : kept_end::how::not_started, 127,
              describe(e.failure, options_)};
    } else if (e.what == keeper_event::exited && expired_) {
      end_ = {kept_end::how::lease_expired, e.status, {}};
    } else {
      end_ = {e.what == keeper_event::exited ? kept_end::how::exited : kept_end::how::lease_expired,
              e.status,
              {},
              e.signalled || enforced_};
    }
  }
  if (!end_ && !keeper_gone_) enforce();
  // The keeper's child died with it; that child's descendants are found by their token.
  if (keeper_gone_ && !end_ && kill_members(group_) == 0)
    end_ = {kept_end::how::lost, 128 + 9, "the program's keeper was killed"};
  return end_;
}

}  // namespace troupe::runtime
