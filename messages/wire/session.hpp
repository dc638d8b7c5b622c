#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "messages/base/fields.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/cluster.hpp"

// About one connection: the transports of its two ends exchange these, and nothing forwards them.

namespace troupe {

/// A host's entry in its own cluster file. Both ends of a connection must agree on it, and on
/// nothing else in their files.
struct host_entry {
  std::string cluster;     // its name
  std::string datacenter;  // except of the controller
  std::string gpu_type;    // of a node
  std::uint32_t gpus = 0;  // of a node

  TROUPE_FIELDS(host_entry, cluster, datacenter, gpu_type, gpus);
};

/// The entry of a host of this cluster.
inline host_entry entry_of(const cluster& c, address a) {
  host_entry e{c.name, {}, {}, 0};
  if (is_gateway(c, a)) e.datacenter = c.datacenters[datacenter_of(a)].name;
  if (is_front(c, a)) e.datacenter = c.datacenters[c.fronts[front_of(a)].datacenter].name;
  if (!is_node(c, a)) return e;
  const auto& n = c.nodes[node_of(a)];
  return {c.name, c.datacenters[n.datacenter].name, c.gpus[n.gpu].name, n.gpus};
}

/// The first frame of a connection, from the side that connected.
struct hello {
  std::string name;                   // the host's name in the cluster file; arbitrary for a client
  std::uint64_t incarnation = 0;      // increases with every start; random for a client
  std::optional<host_entry> entry{};  // none: a client
  /// A node's, to its gateway: where nodes of its datacenter connect to it; the address `0.0.0.0`
  /// stands for the one that the gateway sees.
  std::optional<std::string> endpoint{};
  static constexpr std::size_t required = 2;

  TROUPE_FIELDS(hello, name, incarnation, entry, endpoint);
};

/// The positive answer to `hello`: the number that the greeting side has from now on, and for hosts
/// that reach the controller over this connection also the controller's cluster, in which it has
/// that number.
struct welcome {
  address you = 0;  // the address of the side that greeted
  /// The controller's; none for clients, and between gateways and between nodes.
  std::optional<troupe::cluster> cluster{};
  static constexpr std::size_t required = 1;

  TROUPE_FIELDS(welcome, you, cluster);
};

/// The negative answer to `hello`. The connection is of no use afterwards.
struct refusal {
  /// `refused`: do not retry; `unknown`: greet first; `stale`: a newer incarnation is connected.
  reason why;

  TROUPE_FIELDS(refusal, why);
};

/// The sender has handled this many more frames of the connection: the receiver may send as many
/// more.
struct credit {
  std::uint32_t frames = 0;  // additional frames that may be sent

  TROUPE_FIELDS(credit, frames);
};

/// Node to its gateway: asks where a node of their datacenter listens for tensors. Answered by
/// `node_endpoint` if that node is connected; repeated until then. Neither uses credit.
struct find_node {
  address node = 0;  // address of another node of the datacenter

  TROUPE_FIELDS(find_node, node);
};

/// The answer to `find_node`, once that node is connected.
struct node_endpoint {
  address node = 0;      // the question's
  std::string endpoint;  // where it listens for tensors; empty: nowhere

  TROUPE_FIELDS(node_endpoint, node, endpoint);
};

}  // namespace troupe
