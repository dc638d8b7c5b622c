#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "messages/address.hpp"
#include "messages/reason.hpp"

namespace troupe {

/// First frame of a connection: who is there. `cluster_fingerprint` is a hash of the cluster file
/// as loaded; a client sends 0.
struct hello {
  std::string name;
  std::uint64_t cluster_fingerprint = 0;
  std::uint64_t incarnation = 0;
  /// A node's: where the nodes of its datacenter connect to it for tensors.
  std::optional<std::string> endpoint{};
  static constexpr std::size_t required = 3;

  static constexpr auto fields() {
    using t = hello;
    return std::tuple{&t::name, &t::cluster_fingerprint, &t::incarnation, &t::endpoint};
  }
  bool operator==(const hello&) const = default;
};

/// The answer: the greeted side's name for the other, from now on a number.
struct welcome {
  address you = 0;

  static constexpr auto fields() { return std::tuple{&welcome::you}; }
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
