#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "actors/protocol/request.hpp"
#include "actors/serving/front/completions.hpp"
#include "gpu/device/device_type.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/cluster.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::planners {
class policy;
}

namespace troupe::actors {

/// One process of a real cluster.
struct real_host_options {
  std::shared_ptr<const troupe::cluster> cluster;
  std::string listen;    // tcp://address:port or ipc://path; nodes: by default listen_of_node
  std::string upstream;  // gateways, clients: the controller; nodes, fronts: their gateway
  std::string keys;      // directory; empty: no encryption
  std::string state;     // directory for the journal, logs and process records
  /// Controller: accepts a journal that may have lost its end (runtime/journal/sqlite_journal.hpp).
  bool accept_older_journal = false;
  /// Gateways: connections to each other gateway, for tensors; 0: as many as fill the link.
  std::uint32_t connections = 0;
  /// Gateways: other gateways' endpoints, by datacenter; others as in the cluster file.
  std::map<std::uint32_t, std::string> gateways;
  /// Clients: the name of their key in `keys`; empty: "client", or the only one.
  std::string client_key = {};
  /// Nodes: creates the CUDA devices of their stages; null: this machine's GPUs.
  gpu::cuda_device_maker make_cuda = {};
};

/// Where a node listens by default for tensors of its datacenter's nodes: over TCP
/// if that is how it reaches its gateway, on loopback if the gateway is there; with keys, else only
/// on loopback. Empty: nowhere.
std::string listen_of_node(const std::string& gateway, bool has_keys);

/// Default number of connections for tensors between the gateways of two datacenters: as
/// many as fill the link, 16 at most; one, if the cluster file does not give the rate of a
/// connection.
std::uint32_t wan_connections(const cluster& c, std::uint32_t a, std::uint32_t b);

/// A process's actors in the real world: CAF's scheduler, ZeroMQ, SQLite, the machine's clock.
class real_host {
 public:
  static expected<std::unique_ptr<real_host>> controller(
      real_host_options options, std::shared_ptr<const planners::policy> policy, bool local);
  static expected<std::unique_ptr<real_host>> gateway(real_host_options options,
                                                      std::uint32_t datacenter);
  static expected<std::unique_ptr<real_host>> node(real_host_options options, node_index n);
  /// A front; completions() leads to it.
  static expected<std::unique_ptr<real_host>> front(real_host_options options,
                                                    std::uint32_t number);
  /// Waits until the controller has welcomed it.
  static expected<std::unique_ptr<real_host>> client(real_host_options options, double patience_s);
  ~real_host();

  /// Its endpoint, with the actual port.
  std::string endpoint() const;

  /// Runs until SIGINT or SIGTERM, or until one of its actors has failed; returns that actor's
  /// error. A node then goes on until its work has ended, at most its longest grace, or until a
  /// second signal. `meanwhile`, if given, is called every tenth of a second.
  expected<void> run(const std::function<void()>& meanwhile = {});

  /// The completions of a front.
  const actors::completions& completions() const;

  /// Its own file's, and the controller's from the first answer of that on.
  const shared_cluster& cluster() const;

  /// Sends a client's request and waits for its reply.
  answer ask(message request, double patience_s);

 private:
  struct impl;
  explicit real_host(std::unique_ptr<impl> i);
  /// `prepare`: called with the locked state directory, before any host can connect.
  using prepare_state = std::function<expected<void>(impl&)>;
  static expected<std::unique_ptr<impl>> open(real_host_options options, std::string name,
                                              address self, const prepare_state& prepare = {});
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe::actors
