#pragma once

#include <algorithm>

#include "messages/domain/cluster.hpp"

namespace troupe {

// Defaults for links inside a datacenter that the cluster file does not list, for planners and
// networks.
inline constexpr double unlisted_lan_gbps = 10;
inline constexpr double unlisted_lan_latency_us = 50;

/// The cost of a tensor on a link: time per byte and latency (the alpha-beta model). Concurrent
/// tensors share the link's time equally (fair_share).
struct link_cost {
  double s_per_byte = 0, latency_s = 0;

  double alone_s(double bytes) const { return bytes * s_per_byte; }
  bool operator==(const link_cost&) const = default;
};

/// Do the GPUs of two nodes of a datacenter reach each other over `intra`?
inline bool shares_intra(const cluster& c, node_index a, node_index b) {
  const auto& domain = c.nodes[a].nvlink_domain;
  return a == b || (domain && domain == c.nodes[b].nvlink_domain &&
                    c.nodes[a].datacenter == c.nodes[b].datacenter);
}

/// The link from a GPU of one node to one of another node of its datacenter, or of the same node:
/// the one model for planners and simulated networks. Between nodes a tensor uses the sender's
/// `inter`, which all GPUs of the node share, at the speed of the slower node; inside a node or an
/// NVLink domain the sending GPU's own `intra`.
inline link_cost link_cost_between(const cluster& c, node_index from, node_index to) {
  if (shares_intra(c, from, to)) {
    const auto& l = c.nodes[from].intra;
    return l.gbps > 0 ? link_cost{1 / l.bytes_s(), l.latency_us * 1e-6} : link_cost{};
  }
  link_cost w;
  for (const auto end : {from, to}) {
    static const link unlisted{"", unlisted_lan_gbps, unlisted_lan_latency_us};
    const auto& given = c.nodes[end].inter;
    const auto& l = given.gbps > 0 ? given : unlisted;
    w.s_per_byte = std::max(w.s_per_byte, 1 / l.bytes_s());
    w.latency_s = std::max(w.latency_s, l.latency_us * 1e-6);
  }
  return w;
}

}  // namespace troupe
