#include "harness/emulated_link.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace troupe::harness {

namespace {

constexpr char device_name[] = "cable";
constexpr int queue_packets = 20000;  // of the device

std::string failed(const std::string& what) {
  return fmt::format("{}: {}", what, std::strerror(errno));
}

sockaddr internet(const std::string& address) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  ::inet_pton(AF_INET, address.c_str(), &in.sin_addr);
  sockaddr result{};
  std::memcpy(&result, &in, sizeof in);
  return result;
}

ifreq request(const char* name) {
  ifreq r{};
  std::strncpy(r.ifr_name, name, IFNAMSIZ - 1);
  return r;
}

bool raise_interface(int control, const char* name) {
  auto r = request(name);
  if (::ioctl(control, SIOCGIFFLAGS, &r) < 0) return false;
  r.ifr_flags = static_cast<short>(r.ifr_flags | IFF_UP);
  return ::ioctl(control, SIOCSIFFLAGS, &r) == 0;
}

/// Sets an option of the network that this thread is in; one that this kernel lacks is passed over.
void set(const char* name, const std::string& value) {
  const auto path = std::string{"/proc/sys/net/ipv4/"} + name;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const auto written = ::write(fd, value.data(), value.size());
  ::close(fd);
}

void set_up_tcp(std::uint32_t window_bytes) {
  set("tcp_congestion_control", "cubic");
  set("tcp_slow_start_after_idle", "0");
  set("tcp_no_metrics_save", "1");
  // Buffers of one size that have room for more than the window, so that it is the limit.
  const auto buffer = 4 * window_bytes;
  set("tcp_moderate_rcvbuf", "0");
  set("tcp_rmem", fmt::format("4096 {0} {0}", buffer));
  set("tcp_wmem", fmt::format("4096 {0} {0}", buffer));
}

/// To the other side, over the cable. The route's window decides how far connections scale theirs.
bool add_route(int control, const std::string& to, std::uint32_t window_bytes) {
  rtentry r{};
  char device[IFNAMSIZ] = "";
  std::copy_n(device_name, sizeof device_name, device);
  r.rt_dst = internet(to);
  r.rt_genmask = internet("255.255.255.255");
  r.rt_flags = RTF_UP | RTF_HOST | RTF_WINDOW;
  r.rt_window = window_bytes;
  r.rt_dev = device;
  return ::ioctl(control, SIOCADDRT, &r) == 0;
}

}  // namespace

emulated_link::file::~file() {
  if (fd >= 0) ::close(fd);
}

emulated_link::emulated_link(emulated_link_options options) : o_{options} {}

expected<std::unique_ptr<emulated_link>> emulated_link::make(emulated_link_options options) {
  std::unique_ptr<emulated_link> l{new emulated_link{options}};
  for (std::uint32_t side = 0; side < 2; ++side) {
    std::string why;
    std::thread{[&] { why = l->set_up(side); }}.join();
    if (!why.empty()) return refuse(reason::kind::invalid, "no emulated link: " + why);
  }
  l->stop_.fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (l->stop_.fd < 0) return refuse(reason::kind::invalid, failed("eventfd"));
  l->carrier_ = std::thread{[link = l.get()] { link->carry(); }};
  return l;
}

emulated_link::~emulated_link() {
  if (!carrier_.joinable()) return;
  ::eventfd_write(stop_.fd, 1);
  carrier_.join();
}

/// On a thread of its own, which is in the new network from then on. Gives why not.
std::string emulated_link::set_up(std::uint32_t side) {
  auto& w = ways_[side];
  if (::unshare(CLONE_NEWNET) < 0) return failed("a network of its own (that takes root)");
  w.network.fd = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (w.network.fd < 0) return failed("/proc/thread-self/ns/net");
  w.device.fd = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (w.device.fd < 0) return failed("/dev/net/tun");
  auto r = request(device_name);
  r.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (::ioctl(w.device.fd, TUNSETIFF, &r) < 0) return failed("a TUN device");
  const file control{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  const auto tell = [&](unsigned long what, auto&& fill) {
    auto q = request(device_name);
    fill(q);
    return ::ioctl(control.fd, what, &q) == 0;
  };
  if (!raise_interface(control.fd, "lo") ||
      !tell(SIOCSIFTXQLEN, [](ifreq& q) { q.ifr_qlen = queue_packets; }) ||
      !tell(SIOCSIFMTU, [&](ifreq& q) { q.ifr_mtu = static_cast<int>(o_.packet_bytes); }) ||
      !tell(SIOCSIFADDR, [&](ifreq& q) { q.ifr_addr = internet(address(side)); }) ||
      !tell(SIOCSIFNETMASK, [](ifreq& q) { q.ifr_netmask = internet("255.255.255.255"); }) ||
      !raise_interface(control.fd, device_name) ||
      !add_route(control.fd, address(1 - side), o_.window_bytes()))
    return failed("an interface of its own");
  set_up_tcp(o_.window_bytes());
  return {};
}

std::string emulated_link::address(std::uint32_t side) {
  return fmt::format("10.77.0.{}", side + 1);
}

void emulated_link::inside(std::uint32_t side, const std::function<void()>& what) const {
  std::exception_ptr thrown;
  std::thread{[&] {
    try {
      if (::setns(ways_[side].network.fd, CLONE_NEWNET) < 0)
        throw std::runtime_error{failed("setns")};
      what();
    } catch (...) {
      thrown = std::current_exception();
    }
  }}.join();
  if (thrown) std::rethrow_exception(thrown);
}

emulated_link::counts emulated_link::sent(std::uint32_t side) const {
  const auto& w = ways_[side];
  return {w.packets, w.bytes, w.dropped};
}

// ---- the cable

void emulated_link::carry() {
  std::array<pollfd, 3> wait{
      {{ways_[0].device.fd, POLLIN, 0}, {ways_[1].device.fd, POLLIN, 0}, {stop_.fd, POLLIN, 0}}};
  while ((wait[2].revents & POLLIN) == 0) {
    bool more = false;
    for (std::uint32_t side = 0; side < 2; ++side) {
      more |= take_in(ways_[side]);
      let_out(ways_[side], ways_[1 - side]);
    }
    const auto us = more ? 0 : until_next_us();
    const timespec limit{us / 1'000'000, us % 1'000'000 * 1000L};
    ::ppoll(wait.data(), wait.size(), &limit, nullptr);
  }
}

/// Reads sent packets, up to a fixed number; true: there may be more.
bool emulated_link::take_in(way& from) {
  constexpr int at_once = 64;
  std::array<std::byte, 65536> buffer;
  for (int i = 0; i < at_once; ++i) {
    const auto n = ::read(from.device.fd, buffer.data(), buffer.size());
    if (n <= 0) return false;
    const auto size = static_cast<std::size_t>(n);
    const double now = clock_.s();
    if ((from.free_s - now) * o_.gbps * 1e9 / 8 > static_cast<double>(o_.queue_bytes)) {
      ++from.dropped;
      continue;
    }
    from.free_s = std::max(from.free_s, now) + static_cast<double>(size) * 8e-9 / o_.gbps;
    from.under_way.push_back(
        {from.free_s + o_.delay_ms * 1e-3, {buffer.begin(), buffer.begin() + n}});
    ++from.packets;
    from.bytes += size;
  }
  return true;
}

void emulated_link::let_out(way& from, const way& to) {
  while (!from.under_way.empty() && from.under_way.front().due_s <= clock_.s()) {
    const auto& bytes = from.under_way.front().bytes;
    if (::write(to.device.fd, bytes.data(), bytes.size()) < 0) ++from.dropped;
    from.under_way.pop_front();
  }
}

int emulated_link::until_next_us() const {
  double next_s = clock_.s() + 0.1;
  for (const auto& w : ways_)
    if (!w.under_way.empty()) next_s = std::min(next_s, w.under_way.front().due_s);
  return static_cast<int>(std::max(0.0, (next_s - clock_.s()) * 1e6));
}

}  // namespace troupe::harness
