#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "messages/domain/cluster.hpp"

namespace troupe {

/// A host's number on the wire. Each kind has a block of its own, in which a host's number is its
/// index in the controller's cluster: hosts that join do not change the numbers of others. A host
/// learns its number with its welcome; the controller assigns numbers to clients.
using address = std::uint32_t;

inline constexpr address controller_address = 0;
inline constexpr address first_gateway_address = 1;
inline constexpr address first_node_address = 0x01000000;
inline constexpr address first_front_address = 0x02000000;
/// Clients have this number or a larger one; the first is a client without a number (before its
/// welcome).
inline constexpr address first_client_address = 0x80000000;

constexpr address gateway_address(std::uint32_t datacenter) {
  return first_gateway_address + datacenter;
}
constexpr address node_address(node_index n) {
  return first_node_address + n;
}
constexpr address front_address(std::uint32_t front) {
  return first_front_address + front;
}
/// The datacenter of a gateway's address, and the node and the front with an address of their
/// block; beyond those of the cluster if it is no such address.
constexpr std::uint32_t datacenter_of(address a) {
  return a - first_gateway_address;
}
constexpr node_index node_of(address a) {
  return a - first_node_address;
}
constexpr std::uint32_t front_of(address a) {
  return a - first_front_address;
}
inline bool is_gateway(const cluster& c, address a) {
  return datacenter_of(a) < c.datacenters.size();
}
inline bool is_node(const cluster& c, address a) {
  return node_of(a) < c.nodes.size();
}
inline bool is_front(const cluster& c, address a) {
  return front_of(a) < c.fronts.size();
}
inline bool is_client(address a) {
  return a >= first_client_address;
}
/// The gateway of a node's or front's datacenter.
inline address gateway_of(const cluster& c, address a) {
  return gateway_address(is_node(c, a) ? c.nodes[node_of(a)].datacenter
                                       : c.fronts[front_of(a)].datacenter);
}

/// "controller", the datacenter's name + "/gateway", the node's or front's name, or "client-7".
inline std::string host_name(const cluster& c, address a) {
  if (a == controller_address) return "controller";
  if (is_gateway(c, a)) return c.datacenters[datacenter_of(a)].name + "/gateway";
  if (is_node(c, a)) return c.nodes[node_of(a)].name;
  if (is_front(c, a)) return c.fronts[front_of(a)].name;
  return is_client(a) ? "client-" + std::to_string(a - first_client_address)
                      : "unknown-" + std::to_string(a);
}

/// The host with this name; none: there is no such host.
inline std::optional<address> find_host(const cluster& c, const std::string& name) {
  if (name == "controller") return controller_address;
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    if (name == c.datacenters[d].name + "/gateway") return gateway_address(d);
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (name == c.nodes[n].name) return node_address(n);
  for (std::uint32_t f = 0; f < c.fronts.size(); ++f)
    if (name == c.fronts[f].name) return front_address(f);
  return {};
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
         c.nodes[node_of(a)].datacenter == c.nodes[node_of(b)].datacenter;
}

/// Does the first gateway connect to the other? Else it listens.
inline bool greets(address gateway, address other) {
  return gateway > other;
}

}  // namespace troupe
