#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "messages/base/reason.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/cluster.hpp"

namespace troupe {

/// What a host's own cluster file says about it. Both ends of a connection must agree on it, and on
/// nothing else in their files.
struct host_entry {
  std::string cluster;     // its name
  std::string datacenter;  // all but the controller
  std::string gpu_type;    // nodes
  std::uint32_t gpus = 0;

  static constexpr auto fields() {
    using t = host_entry;
    return std::tuple{&t::cluster, &t::datacenter, &t::gpu_type, &t::gpus};
  }
  bool operator==(const host_entry&) const = default;
};

/// Of a host of this cluster.
inline host_entry entry_of(const cluster& c, address a) {
  host_entry e{c.name, {}, {}, 0};
  if (is_gateway(c, a)) e.datacenter = c.datacenters[datacenter_of(a)].name;
  if (is_front(c, a)) e.datacenter = c.datacenters[c.fronts[front_of(a)].datacenter].name;
  if (!is_node(c, a)) return e;
  const auto& n = c.nodes[node_of(a)];
  return {c.name, c.datacenters[n.datacenter].name, c.gpus[n.gpu].name, n.gpus};
}

/// First frame of a connection: who is there.
struct hello {
  std::string name;
  std::uint64_t incarnation = 0;
  std::optional<host_entry> entry{};  // none: a client
  /// A node's: where the nodes of its datacenter connect to it for tensors.
  std::optional<std::string> endpoint{};
  static constexpr std::size_t required = 2;

  static constexpr auto fields() {
    using t = hello;
    return std::tuple{&t::name, &t::incarnation, &t::entry, &t::endpoint};
  }
  bool operator==(const hello&) const = default;
};

/// The answer: the greeted side's name for the other, from now on a number, and for hosts that it
/// leads to the controller also the controller's cluster, in which the number is one.
struct welcome {
  address you = 0;
  std::optional<troupe::cluster> cluster{};
  static constexpr std::size_t required = 1;

  static constexpr auto fields() { return std::tuple{&welcome::you, &welcome::cluster}; }
  bool operator==(const welcome&) const = default;
};

/// The other answer. The connection is of no use afterwards.
struct refusal {
  reason why;

  static constexpr auto fields() { return std::tuple{&refusal::why}; }
  bool operator==(const refusal&) const = default;
};

/// The receiver has handled `frames` more frames of this connection: the sender may send as many
/// more.
struct credit {
  std::uint32_t frames = 0;

  static constexpr auto fields() { return std::tuple{&credit::frames}; }
  bool operator==(const credit&) const = default;
};

/// Node to its gateway: where does this node of their datacenter listen for tensors?
struct find_node {
  address node = 0;

  static constexpr auto fields() { return std::tuple{&find_node::node}; }
  bool operator==(const find_node&) const = default;
};

/// The answer, once that node is connected. Empty: it listens nowhere.
struct node_endpoint {
  address node = 0;
  std::string endpoint;

  static constexpr auto fields() {
    return std::tuple{&node_endpoint::node, &node_endpoint::endpoint};
  }
  bool operator==(const node_endpoint&) const = default;
};

}  // namespace troupe
