#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/host/transport.hpp"
#include "runtime/world.hpp"

// The same hosts over every transport: what a test of the seam needs, and nothing that only one
// has.

namespace troupe::runtime::conformance {

inline constexpr address controller = 0, dc1 = 1, dc2 = 2, a0 = node_address(0),
                         a1 = node_address(1), b0 = node_address(2);
inline constexpr address a_client = first_client_address + 1;
/// Maximum number of frames in flight or waiting between two hosts: small, so that tests reach it.
inline constexpr std::uint32_t credit_frames = 128;
/// Between two gateways, where connections can be counted.
inline constexpr std::uint32_t gateway_connections = 4;

/// The hosts of two_datacenters(), each with a transport and the frames that it received.
class network {
 public:
  virtual ~network() = default;

  /// Starts a host, or starts it again as its next incarnation. Its frames are handled at once
  /// unless `handles` is false.
  virtual void start(address a, bool handles = true) = 0;
  /// The host dies without a word.
  virtual void stop(address a) = 0;
  virtual bool is_simulated() const { return false; }
  /// Lets time pass until it is so; false: it never was.
  virtual bool eventually(const std::function<bool()>& so) = 0;

  transport& net(address a) { return *hosts_.at(a)->net; }
  std::size_t received(address a) const;
  std::vector<frame> take(address a);
  bool arrives(address a, std::size_t frames) {
    return eventually([=, this] { return received(a) >= frames; });
  }

 protected:
  struct host_state {
    std::shared_ptr<transport> net;
    mutable std::mutex mutex;
    std::vector<frame> frames;
  };
  void listen(address a, std::shared_ptr<transport> net, bool handles);

  std::map<address, std::shared_ptr<host_state>> hosts_;
};

/// "simulated", "tcp" or "ipc".
std::unique_ptr<network> make_network(const std::string& kind);

}  // namespace troupe::runtime::conformance
