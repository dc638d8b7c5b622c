#pragma once

#include <cstdint>
#include <string>

#include "messages/cluster.hpp"

namespace troupe {

/// A host's number on the wire, derived from the cluster file, so that both ends of a connection
/// agree once the greeting has compared the cluster's fingerprint: 0 is the controller, then come
/// the gateways, then the nodes, then the fronts, in the file's order. The controller assigns
/// numbers to clients when it welcomes them.
using address = std::uint32_t;

inline constexpr address controller_address = 0;
/// Clients have this number or a larger one; the first is a client without a number (before its
/// welcome).
inline constexpr address first_client_address = 0x80000000;

inline address gateway_address(std::uint32_t datacenter) {
  return 1 + datacenter;
}
inline address node_address(const cluster& c, node_index n) {
  return static_cast<address>(1 + c.datacenters.size() + n);
}
inline bool is_gateway(const cluster& c, address a) {
  return a >= 1 && a <= c.datacenters.size();
}
inline bool is_node(const cluster& c, address a) {
  return a > c.datacenters.size() && a < 1 + c.datacenters.size() + c.nodes.size();
}
inline address front_address(const cluster& c, std::uint32_t front) {
  return static_cast<address>(1 + c.datacenters.size() + c.nodes.size() + front);
}
inline bool is_front(const cluster& c, address a) {
  return a >= front_address(c, 0) && a < front_address(c, 0) + c.fronts.size();
}
inline bool is_client(address a) {
  return a >= first_client_address;
}
/// The node with this address; is_node must hold.
inline node_index node_of(const cluster& c, address a) {
  return static_cast<node_index>(a - 1 - c.datacenters.size());
}

/// The front with this address; is_front must hold.
inline std::uint32_t front_of(const cluster& c, address a) {
  return a - front_address(c, 0);
}
/// The gateway of a node's or front's datacenter.
inline address gateway_of(const cluster& c, address a) {
  return gateway_address(is_node(c, a) ? c.nodes[node_of(c, a)].datacenter
                                       : c.fronts[front_of(c, a)].datacenter);
}

/// "controller", the datacenter's name + "/gateway", the node's or front's name, or "client-7".
inline std::string host_name(const cluster& c, address a) {
  if (a == controller_address) return "controller";
  if (is_gateway(c, a)) return c.datacenters[a - 1].name + "/gateway";
  if (is_node(c, a)) return c.nodes[node_of(c, a)].name;
  if (is_front(c, a)) return c.fronts[front_of(c, a)].name;
  return is_client(a) ? "client-" + std::to_string(a - first_client_address)
                      : "unknown-" + std::to_string(a);
}

/// The next host of a frame's route: nodes and fronts send to their datacenter's gateway, gateways
/// to each other, all others to the controller. A host never sends to itself. (Tensors inside a
/// datacenter have a second, direct route: are_local_nodes.)
inline address next_hop(const cluster& c, address self, address to) {
  if (is_node(c, self) || is_front(c, self)) return gateway_of(c, self);
  const bool is_door = is_gateway(c, self);
  if (!is_door && self != controller_address) return controller_address;
  if (is_node(c, to) || is_front(c, to)) {
    const auto door = gateway_of(c, to);
    return door == self ? to : door;
  }
  return !is_door || is_gateway(c, to) ? to : controller_address;
}

/// Two nodes of one datacenter, which exchange tensors directly.
inline bool are_local_nodes(const cluster& c, address a, address b) {
  return a != b && is_node(c, a) && is_node(c, b) &&
         c.nodes[node_of(c, a)].datacenter == c.nodes[node_of(c, b)].datacenter;
}

/// Of two gateways, the one that connects; the other listens.
inline bool greets(address gateway, address other) {
  return gateway > other;
}

}  // namespace troupe
