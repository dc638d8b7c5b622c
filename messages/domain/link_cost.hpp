#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "messages/domain/cluster.hpp"

namespace troupe {

// Defaults for links inside a datacenter that the cluster file does not list, for planners and
// networks.
inline constexpr double unlisted_lan_gbps = 10;
inline constexpr double unlisted_lan_latency_us = 50;

/// The cost of a tensor on a link: time per byte and latency (the alpha-beta model), or by the
/// curves of its two ends. Concurrent tensors share the link's time equally, but none gets more of
/// it than its flows carry (fair_share).
struct link_cost {
  double s_per_byte = 0;  // where the rate depends on the size, of the fastest one
  double latency_s = 0;
  // GPUs that send, and the ends of a link with rates by size or flow: those of a cluster, which
  // outlives this. Null: it has none.
  std::uint32_t flows = 1;
  std::array<const link*, 2> ends{};

  bool has_rates() const { return ends[0] != nullptr; }
  /// Until the last byte has left an otherwise idle link.
  double alone_s(double bytes) const {
    if (!has_rates()) return bytes * s_per_byte;
    return std::max(bytes / ends[0]->bytes_s(bytes, flows), bytes / ends[1]->bytes_s(bytes, flows));
  }
  /// The link's time that it uses: less than alone_s where its flows do not fill the link.
  double link_s(double bytes) const {
    if (!has_rates()) return bytes * s_per_byte;
    return std::max(bytes / ends[0]->bytes_s(bytes), bytes / ends[1]->bytes_s(bytes));
  }
  /// A lower bound of link_s, in proportion to the bytes.
  double fastest_s(double bytes) const { return bytes * s_per_byte; }
  /// An upper bound of alone_s for at most that many bytes: a smaller tensor may take longer, where
  /// the rate grows faster than the size.
  double max_s(double bytes) const {
    if (!has_rates()) return bytes * s_per_byte;
    return bytes / std::min(ends[0]->min_bytes_s(flows), ends[1]->min_bytes_s(flows));
  }
  /// link_s / alone_s: the largest share of the link that the tensor can have.
  double share(double bytes) const {
    return has_rates() && bytes > 0 ? link_s(bytes) / alone_s(bytes) : 1;
  }
  bool operator==(const link_cost&) const = default;
};

/// The link from a GPU of one node to one of another node of its datacenter, or of the same node:
/// the one model for planners and simulated networks. Between nodes a tensor uses the sender's
/// `inter`, which all GPUs of the node share, at the speed of the slower node; inside a node the
/// sending GPU's own `intra`. `flows`: GPUs that send the tensor together.
inline link_cost link_cost_between(const cluster& c, node_index from, node_index to,
                                   std::uint32_t flows = 1) {
  static const link unlisted{"", unlisted_lan_gbps, unlisted_lan_latency_us};
  link_cost w;
  if (from == to) {
    const auto& l = c.nodes[from].intra;
    if (l.gbps > 0) w = {1 / (l.max_gbps() * 1e9 / 8), l.latency_us * 1e-6};
    if (l.has_rates()) w.flows = flows, w.ends = {&l, &l};
    return w;
  }
  const auto of_end = [&](node_index end) {
    const auto& given = c.nodes[end].inter;
    return given.gbps > 0 ? &given : &unlisted;
  };
  const std::array ends{of_end(from), of_end(to)};
  for (const auto* l : ends) {
    w.s_per_byte = std::max(w.s_per_byte, 1 / (l->max_gbps() * 1e9 / 8));
    w.latency_s = std::max(w.latency_s, l->latency_us * 1e-6);
  }
  if (ends[0]->has_rates() || ends[1]->has_rates()) w.flows = flows, w.ends = ends;
  return w;
}

}  // namespace troupe
