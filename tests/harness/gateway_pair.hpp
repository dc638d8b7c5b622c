#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/protocol/host_threads.hpp"
#include "harness/scratch.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/stage.hpp"
#include "runtime/host/stopwatch.hpp"
#include "runtime/zeromq/transport.hpp"

namespace troupe::harness {

struct gateway_pair_options {
  wan_link wan;             // between the two datacenters
  std::uint32_t lanes = 8;  // connections for tensors
  /// Where the gateways listen.
  std::array<std::string, 2> listen{"tcp://127.0.0.1:*", "tcp://127.0.0.1:*"};
  /// Runs what opens a side's connections; null: as it is.
  std::function<void(std::uint32_t side, const std::function<void()>&)> inside;
};

/// Real gateways of two datacenters, each with a node played by the caller.
/// Throws std::runtime_error where something cannot be opened.
class gateway_pair {
 public:
  struct arrival {
    double at_s = 0;  // since this object was made
    tensor what;
    payload body;
  };

  explicit gateway_pair(gateway_pair_options options);
  ~gateway_pair();
  gateway_pair(const gateway_pair&) = delete;

  /// From the first datacenter's node to the second's; false: its gateway has enough for now.
  bool send(const tensor& t, const payload& body);

  /// The number of tensors that have come and were not taken.
  std::size_t arrived() const;
  std::vector<arrival> take();

 private:
  std::shared_ptr<runtime::zeromq_transport> open(address a, const std::string& upstream,
                                                  std::vector<runtime::zeromq_link> links);
  void open_gateway(std::uint32_t side, std::vector<runtime::zeromq_link> links);
  void inside(std::uint32_t side, const std::function<void()>& what) const;

  gateway_pair_options o_;
  runtime::stopwatch clock_;
  std::shared_ptr<cluster> cluster_;
  // The folder of the controller's socket: a path, unlike a port, is the same in every network.
  test::scratch directory_;
  actors::host_threads config_;
  caf::actor_system system_{config_};
  std::vector<caf::actor> actors_;
  std::shared_ptr<runtime::zeromq_transport> controller_;
  std::array<std::shared_ptr<runtime::zeromq_transport>, 2> gateways_, nodes_;
  mutable std::mutex mutex_;
  std::vector<arrival> arrived_;
};

}  // namespace troupe::harness
