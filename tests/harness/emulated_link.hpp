#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "messages/base/reason.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::harness {

struct emulated_link_options {
  double gbps = 0.5;     // each way
  double delay_ms = 40;  // one way
  /// A TCP connection has no more than 65535 << window_scale bytes on its way: the largest value of
  /// its window's field, whatever buffers the kernel chooses.
  std::uint32_t window_scale = 0;
  std::size_t queue_bytes = 16 << 20;  // waiting for the rate; what comes then is dropped
  std::uint32_t packet_bytes = 1500;

  std::uint32_t window_bytes() const { return 65535U << window_scale; }
  /// The rate of one connection if its window alone limits it.
  double window_gbps() const { return window_bytes() * 8e-6 / (2 * delay_ms); }
};

/// Two networks of the kernel's own and a long cable between them: whatever is sent from one to the
/// other passes this process, which delays it and lets it through at a rate. TCP is the kernel's,
/// with real windows.
///
/// Each network is a namespace without a name, with a TUN device in it: it is gone when this object
/// and all sockets in it are, however the process ends.
class emulated_link {
 public:
  /// Refuses, with a sentence, where the process may not do this: it takes root and /dev/net/tun.
  static expected<std::unique_ptr<emulated_link>> make(emulated_link_options options);
  ~emulated_link();
  emulated_link(const emulated_link&) = delete;

  /// Runs something on a thread in the network of a side (0, 1), and waits for it. What it opens
  /// belongs there, and so do the threads that it starts.
  void inside(std::uint32_t side, const std::function<void()>& what) const;

  /// A side's IPv4 address.
  static std::string address(std::uint32_t side);

  struct counts {
    std::uint64_t packets = 0, bytes = 0, dropped = 0;
  };
  /// From a side to the other.
  counts sent(std::uint32_t side) const;

 private:
  struct file {
    int fd = -1;
    ~file();
  };
  struct packet {
    double due_s = 0;
    std::vector<std::byte> bytes;
  };
  struct way {  // from one side
    file network, device;
    std::deque<packet> under_way;
    double free_s = 0;
    std::atomic<std::uint64_t> packets{0}, bytes{0}, dropped{0};
  };

  explicit emulated_link(emulated_link_options options);
  std::string set_up(std::uint32_t side);
  void carry();
  bool take_in(way& from);
  void let_out(way& from, const way& to);
  int until_next_us() const;

  emulated_link_options o_;
  std::array<way, 2> ways_;
  file stop_;  // readable when it is time
  runtime::stopwatch clock_;
  std::thread carrier_;
};

}  // namespace troupe::harness
