#include "runtime/process/link_probe.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "messages/base/descriptor.hpp"
#include "messages/base/refuse.hpp"
#include "runtime/host/real_clock.hpp"

namespace troupe::runtime {

namespace {

// A connection begins with a greeting in both directions: the line, the number of the measurement,
// and how many connections it has. Then the measuring side sends pieces: their length in eight
// bytes, little-endian, and so many bytes; the other side answers each with the same eight bytes. A
// length of 0 ends the connection. Everything is checked: the port is open to whoever reaches it.
constexpr std::string_view greeting_line = "troupe profile --links 1\n";
constexpr std::size_t greeting_bytes = greeting_line.size() + 8 + 4;
constexpr std::uint64_t max_piece = std::uint64_t{1} << 30;
constexpr std::uint64_t first_bytes = 64 << 10, last_bytes = 64 << 20;
constexpr int rounds = 5;
// A size that takes longer than this is the last one.
constexpr double long_s = 2;

double now_s() {
  return real_clock{}.now_s();
}

std::string error_text() {
  return std::strerror(errno);
}

template <class T>
void put(char* at, T x) {
  for (std::size_t i = 0; i < sizeof x; ++i) at[i] = static_cast<char>(x >> (8 * i));
}
template <class T>
T get(const char* at) {
  T x = 0;
  for (std::size_t i = 0; i < sizeof x; ++i)
    x |= static_cast<T>(static_cast<unsigned char>(at[i])) << (8 * i);
  return x;
}

std::array<char, greeting_bytes> bytes_of(std::uint64_t number, std::uint32_t flows) {
  std::array<char, greeting_bytes> out{};
  std::ranges::copy(greeting_line, out.begin());
  put(out.data() + greeting_line.size(), number);
  put(out.data() + greeting_line.size() + 8, flows);
  return out;
}

/// Its number and flows; nothing: it is another protocol's.
std::optional<std::pair<std::uint64_t, std::uint32_t>> greeting_of(
    const std::array<char, greeting_bytes>& in) {
  if (std::string_view{in.data(), greeting_line.size()} != greeting_line) return {};
  const auto flows = get<std::uint32_t>(in.data() + greeting_line.size() + 8);
  if (flows < 1 || flows > max_link_flows) return {};
  return std::pair{get<std::uint64_t>(in.data() + greeting_line.size()), flows};
}

/// A non-blocking connection. False: the other side is silent for `answer_s`, or gone.
class connection {
 public:
  connection(descriptor fd, double answer_s) : fd_{std::move(fd)}, answer_s_{answer_s} {
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
  }

  bool write(const char* bytes, std::size_t size) {
    while (size > 0) {
      const auto n = ::send(fd_, bytes, size, MSG_NOSIGNAL);
      if (n > 0) {
        bytes += n;
        size -= static_cast<std::size_t>(n);
      } else if (!is_worth_waiting()) {
        is_gone_ = true;
        return false;
      } else if (!wait(POLLOUT)) {
        return false;
      }
    }
    return true;
  }
  bool read(char* bytes, std::size_t size) {
    while (size > 0) {
      const auto n = ::recv(fd_, bytes, size, 0);
      if (n > 0) {
        bytes += n;
        size -= static_cast<std::size_t>(n);
      } else if (n == 0 || !is_worth_waiting()) {
        is_gone_ = true;
        return false;
      } else if (!wait(POLLIN)) {
        return false;
      }
    }
    return true;
  }
  /// The same, all of it within `answer_s`: a byte now and then does not prolong it.
  bool read_in_time(char* bytes, std::size_t size) {
    until_s_ = now_s() + answer_s_;
    const bool came = read(bytes, size);
    until_s_.reset();
    return came;
  }
  /// After a read or a write that has failed: is the other side gone, and not silent?
  bool is_gone() const { return is_gone_; }

 private:
  static bool is_worth_waiting() {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  }
  bool wait(short what) const {
    pollfd p{fd_, what, 0};
    const double until_s = until_s_.value_or(now_s() + answer_s_);
    for (;;) {
      const double left_s = until_s - now_s();
      if (left_s <= 0) return false;
      const int n = ::poll(&p, 1, static_cast<int>(left_s * 1e3) + 1);
      if (n > 0) return true;
      if (n < 0 && errno != EINTR) return false;
    }
  }
  descriptor fd_;
  double answer_s_;
  std::optional<double> until_s_{};  // of several waits together
  bool is_gone_ = false;
};

struct endpoint {
  sockaddr_storage at{};
  socklen_t size = 0;
  int family = AF_INET;
};

/// HOST:PORT, or tcp://HOST:PORT; a host may be in brackets.
expected<endpoint> endpoint_of(std::string address, bool listens) {
  const auto whole = address;
  if (address.starts_with("tcp://")) address.erase(0, 6);
  const auto colon = address.rfind(':');
  const auto bad = [&](std::string_view why) {
    return refuse(reason::kind::invalid, "'{}' is no address: {}; expected HOST:PORT", whole, why);
  };
  if (colon == std::string::npos || colon == 0) return bad("it has no port");
  auto host = address.substr(0, colon);
  const auto port = address.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  if (port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65535 ||
      (std::stoi(port) == 0 && !listens))
    return bad("its port is none");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = listens ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  if (const int e = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); e != 0)
    return refuse(reason::kind::unknown, "{}: {}", whole, ::gai_strerror(e));
  endpoint out;
  std::memcpy(&out.at, found->ai_addr, found->ai_addrlen);
  out.size = found->ai_addrlen;
  out.family = found->ai_family;
  ::freeaddrinfo(found);
  return out;
}

std::string text_of(const sockaddr_storage& at, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&at), size, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "?";
  const std::string_view name{host.data()};
  const bool six = name.find(':') != std::string_view::npos;
  return fmt::format("{}{}{}:{}", six ? "[" : "", name, six ? "]" : "", port.data());
}

reason no_answer(const std::string& address, double answer_s) {
  return {reason::kind::refused, fmt::format("{}: no answer in {:g} s", address, answer_s)};
}

expected<connection> connect_to(const std::string& address, const endpoint& to, double answer_s) {
  descriptor fd{::socket(to.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (fd < 0) return refuse(reason::kind::refused, "no socket: {}", error_text());
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to.at), to.size) != 0 &&
      errno != EINPROGRESS)
    return refuse(reason::kind::refused, "{}: {}", address, error_text());
  pollfd p{fd, POLLOUT, 0};
  if (::poll(&p, 1, static_cast<int>(answer_s * 1e3)) <= 0)
    return refuse(no_answer(address, answer_s));
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return refuse(reason::kind::refused, "{}: {}", address, std::strerror(error));
  return connection{std::move(fd), answer_s};
}

/// One piece there, and its answer back.
bool exchange(connection& c, std::uint64_t bytes, const std::vector<char>& data) {
  std::array<char, 8> head{}, answer{};
  put(head.data(), bytes);
  if (!c.write(head.data(), head.size())) return false;
  for (std::uint64_t left = bytes; left > 0;) {
    const auto some = std::min<std::uint64_t>(left, data.size());
    if (!c.write(data.data(), some)) return false;
    left -= some;
  }
  return c.read(answer.data(), answer.size()) && answer == head;
}

/// Seconds until all of `flows` connections have carried their parts of `bytes`: of some rounds the
/// fastest, as everything else that the machines do only adds. Nothing: a connection broke.
std::optional<double> carry_s(std::vector<connection>& all, std::size_t flows,
                              std::uint64_t bytes) {
  const std::vector<char> data(std::min<std::uint64_t>(bytes / flows, 1 << 20));
  std::vector<double> took;
  std::vector<char> good(flows, 1);
  double begin_s = 0;
  std::barrier start{static_cast<std::ptrdiff_t>(flows)}, end{static_cast<std::ptrdiff_t>(flows)};
  // The thread of flow 0 has the clock. All take part in every round, even after a failure, since
  // the others wait for them.
  const auto run = [&](std::size_t flow) {
    for (int round = 0; round < rounds; ++round) {
      start.arrive_and_wait();
      if (flow == 0) begin_s = now_s();
      if (good[flow]) good[flow] = exchange(all[flow], bytes / flows, data) ? 1 : 0;
      end.arrive_and_wait();
      if (flow == 0) took.push_back(now_s() - begin_s);
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t flow = 1; flow < flows; ++flow) others.emplace_back(run, flow);
    run(0);
  }
  if (std::ranges::any_of(good, [](char g) { return g == 0; })) return {};
  return std::ranges::min(took);
}

}  // namespace

expected<link_measurement> measure_link(const std::string& address, std::uint32_t flows,
                                        double answer_s) {
  const auto to = endpoint_of(address, false);
  if (!to) return refuse(to.error());
  flows = std::clamp(flows, 1U, max_link_flows);
  const auto number = std::bit_cast<std::uint64_t>(now_s());
  const auto greets = bytes_of(number, flows);
  std::vector<connection> all;
  for (std::uint32_t i = 0; i < flows; ++i) {
    auto c = connect_to(address, *to, answer_s);
    if (!c) return refuse(c.error());
    std::array<char, greeting_bytes> answer{};
    const bool came =
        c->write(greets.data(), greets.size()) && c->read_in_time(answer.data(), answer.size());
    if (!came && !c->is_gone()) return refuse(no_answer(address, answer_s));
    if (!came || answer != greets)
      return refuse(reason::kind::refused,
                    "{}: something else listens there{}; run `troupe profile --links --listen` on "
                    "that machine",
                    address, came ? "" : ", and ends the connection");
    all.push_back(std::move(*c));
  }
  const auto broke = [&] {
    return refuse(reason::kind::refused,
                  "{}: the connection broke, or was silent for {:g} s, while it was measured",
                  address, answer_s);
  };
  link_measurement m;
  m.flows = flows;
  const auto trip_s = carry_s(all, 1, 8);
  if (!trip_s) return broke();
  m.round_trip_s = *trip_s;
  const auto curve_of = [&](std::size_t together, std::vector<link_rate>& curve) {
    for (auto bytes = first_bytes; bytes <= last_bytes; bytes *= 4) {
      const auto s = carry_s(all, together, bytes);
      if (!s) return false;
      // Without the latency, which cluster files have on its own.
      const double sent_s = std::max(*s - m.round_trip_s, 1e-2 * *s);
      const double gbps = static_cast<double>(bytes) * 8e-9 / sent_s;
      curve.push_back({bytes, std::clamp(gbps, 1e-6, max_link_gbps)});
      if (*s > long_s) break;
    }
    return true;
  };
  if (!curve_of(1, m.flow_rates)) return broke();
  if (flows == 1)
    m.rates = m.flow_rates;
  else if (!curve_of(flows, m.rates))
    return broke();
  const std::array<char, 8> end{};
  for (auto& c : all) c.write(end.data(), end.size());
  return m;
}

struct link_listener::state {
  descriptor fd;
  std::string address;
};

link_listener::link_listener(std::unique_ptr<state> s) : state_{std::move(s)} {}
link_listener::link_listener(link_listener&&) noexcept = default;
link_listener& link_listener::operator=(link_listener&&) noexcept = default;
link_listener::~link_listener() = default;

const std::string& link_listener::address() const {
  return state_->address;
}

expected<link_listener> link_listener::open(const std::string& address) {
  const auto at = endpoint_of(address, true);
  if (!at) return refuse(at.error());
  auto s = std::make_unique<state>();
  s->fd = descriptor{::socket(at->family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int on = 1;
  ::setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (s->fd < 0 || ::bind(s->fd, reinterpret_cast<const sockaddr*>(&at->at), at->size) != 0 ||
      ::listen(s->fd, static_cast<int>(max_link_flows)) != 0)
    return refuse(reason::kind::refused, "cannot listen at {}: {}", address, error_text());
  sockaddr_storage chosen{};
  socklen_t size = sizeof chosen;
  ::getsockname(s->fd, reinterpret_cast<sockaddr*>(&chosen), &size);
  s->address = text_of(chosen, size);
  return link_listener{std::move(s)};
}

namespace {

/// Answers pieces until one of length 0; why not, if the other side breaks the rules.
std::string answer_pieces(connection& c) {
  std::vector<char> data(1 << 20);
  std::array<char, 8> head{};
  for (;;) {
    if (!c.read(head.data(), head.size()))
      return fmt::format("it ended early, or was silent for {:g} s", link_answer_s);
    const auto bytes = get<std::uint64_t>(head.data());
    if (bytes == 0) return {};
    if (bytes > max_piece)
      return fmt::format("it announced a piece of {} bytes, expected at most {}", bytes, max_piece);
    for (auto left = bytes; left > 0;) {
      const auto some = std::min<std::uint64_t>(left, data.size());
      if (!c.read(data.data(), some))
        return fmt::format("a piece of {} bytes ended {} bytes early", bytes, left);
      left -= some;
    }
    if (!c.write(head.data(), head.size())) return "it does not take answers";
  }
}

}  // namespace

expected<std::string> link_listener::serve(const std::function<void(const std::string&)>& ignored) {
  std::vector<connection> all;
  std::optional<std::pair<std::uint64_t, std::uint32_t>> first;
  std::string peer;
  while (!first || all.size() < first->second) {
    // The first one may come at any time, the others at once.
    if (pollfd p{state_->fd, POLLIN, 0};
        first && ::poll(&p, 1, static_cast<int>(link_answer_s * 1e3)) <= 0)
      return refuse(reason::kind::refused, "{}: {} of {} connections came within {:g} s", peer,
                    all.size(), first->second, link_answer_s);
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    descriptor fd{::accept4(state_->fd, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC)};
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return refuse(reason::kind::refused, "cannot accept connections: {}", error_text());
    }
    connection c{std::move(fd), link_answer_s};
    const auto who = text_of(from, size);
    std::array<char, greeting_bytes> in{};
    const bool came = c.read_in_time(in.data(), in.size());
    const auto greets = came ? greeting_of(in) : std::nullopt;
    if (!greets || (first && *greets != *first)) {
      constexpr std::string_view answer =
          "This is `troupe profile --links --listen`; run `troupe profile --links` to measure.\n";
      c.write(answer.data(), answer.size());
      ignored(fmt::format("{}: {}", who,
                          !came     ? "said nothing that `troupe profile --links` says"
                          : !greets ? "is no `troupe profile --links`"
                                    : "is another measurement; one is under way"));
      continue;
    }
    if (!c.write(in.data(), in.size())) continue;
    if (!first) first = greets, peer = who;
    all.push_back(std::move(c));
  }
  std::vector<std::string> errors(all.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < all.size(); ++i)
      threads.emplace_back([&, i] { errors[i] = answer_pieces(all[i]); });
  }
  for (const auto& e : errors)
    if (!e.empty()) return refuse(reason::kind::refused, "{}: {}", peer, e);
  return peer;
}

}  // namespace troupe::runtime
