#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/link_rates.hpp"
#include "messages/domain/profile.hpp"

namespace troupe {

/// gpu_type::kernel_us of catalogues that give none (docs/planners/cost_model.md).
inline constexpr double default_kernel_us = 50;

/// A type of GPU, from the catalogue.
struct gpu_type {
  std::string name;
  double memory_gb = 0;    // decimal, as marketed
  double fp16_tflops = 0;  // dense tensor-core peak; fp32 if it has none
  double fp32_tflops = 0;
  double memory_gbytes_s = 0;
  double efficiency = 0.45;  // share of the peak that large matrix products reach
  double price_per_hour = 0;
  std::string source;       // of these figures
  std::uint32_t quota = 0;  // maximum number of GPUs of this type per job; 0: no limit
  std::optional<device_profile>
      profile{};  // measured on one of them; replaces estimates where available
  // CUDA compute capability, such as 8.6; 0: no CUDA; nothing: unknown.
  std::optional<double> compute_capability{};
  double tf32_tflops = 0;         // dense; 0: it has no TF32
  double fp32_efficiency = 0.75;  // as efficiency, in single precision and TF32
  // Fixed loss of a matrix product: one that takes as long as this runs at half of the peak. 0:
  // estimates are FLOPs over efficiency alone, without bytes and floors.
  double kernel_us = 0;
  std::optional<double> fp8_tflops{};  // dense, 8 bits; none: it has no FP8
  static constexpr std::size_t required = 11;

  double memory_bytes() const { return memory_gb * bytes_per_gb; }
  TROUPE_FIELDS(gpu_type, name, memory_gb, fp16_tflops, fp32_tflops, memory_gbytes_s, efficiency,
                price_per_hour, source, quota, profile, compute_capability, tf32_tflops,
                fp32_efficiency, kernel_us, fp8_tflops);
};

/// A link between GPUs of a node, or between nodes of a datacenter.
struct link {
  std::string name;
  double gbps = 0;
  double latency_us = 0;
  std::optional<std::vector<link_rate>> rates{};         // by size, in place of gbps
  std::optional<std::vector<link_rate>> flow_rates{};    // what one GPU's flow gets at most
  std::optional<std::vector<group_rate>> group_rates{};  // of all-reduces inside a node
  static constexpr std::size_t required = 3;

  double bytes_s() const { return gbps * 1e9 / 8; }
  /// The largest rate of all sizes.
  double max_gbps() const {
    return rates ? std::ranges::max(*rates, {}, &link_rate::gbps).gbps : gbps;
  }
  bool has_rates() const { return rates || flow_rates; }
  /// The rate of the whole link for transfers of that many bytes.
  double bytes_s(double bytes) const {
    return rates ? gbps_at(*rates, bytes) * 1e9 / 8 : bytes_s();
  }
  /// The rate of a transfer that has the link alone and is sent by that many GPUs.
  double bytes_s(double bytes, std::uint32_t flows) const {
    const double whole = bytes_s(bytes);
    return flow_rates ? std::min(whole, flows * gbps_at(*flow_rates, bytes) * 1e9 / 8) : whole;
  }
  /// The smallest one of a transfer, of all sizes.
  double min_bytes_s(std::uint32_t flows) const {
    const auto slowest = [](const std::vector<link_rate>& all) {
      return std::ranges::min(all, {}, &link_rate::gbps).gbps;
    };
    double min_gbps = rates ? slowest(*rates) : gbps;
    if (flow_rates) min_gbps = std::min(min_gbps, flows * slowest(*flow_rates));
    return min_gbps * 1e9 / 8;
  }
  TROUPE_FIELDS(link, name, gbps, latency_us, rates, flow_rates, group_rates);
};

/// A machine with GPUs of one type.
struct node {
  std::string name;
  std::uint32_t datacenter = 0;  // index into cluster::datacenters
  gpu_index gpu = 0;             // index of its GPU type
  std::uint32_t gpus = 0;        // 0: it was removed
  link intra;                    // between its GPUs
  link inter;                    // to other nodes
  std::string address{};         // host name or IP for programs; empty: the node's name
  // Its CPU devices take 1 / emulate_speed times as long; at most 1.
  double emulate_speed = 1;
  /// It left the cluster file, and has no GPUs; what refers to it keeps its name.
  bool removed = false;
  /// Nodes of a datacenter with the same number reach each other's GPUs over `intra`, as racks with
  /// NVLink switches do; none: only its own GPUs.
  std::optional<std::uint32_t> nvlink_domain{};
  static constexpr std::size_t required = 7;

  TROUPE_FIELDS(node, name, datacenter, gpu, gpus, intra, inter, address, emulate_speed, removed,
                nvlink_domain);
};

/// A place with one gateway; its nodes reach each other without crossing a WAN.
struct datacenter {
  std::string name;
  std::string gateway;  // where its gateway listens (tcp://host:port); empty: chosen by `troupe up`
  bool removed = false;  // it left the cluster
  static constexpr std::size_t required = 2;

  TROUPE_FIELDS(datacenter, name, gateway, removed);
};

/// A process that answers requests to served models, connected to its datacenter's gateway.
struct front {
  std::string name;
  std::uint32_t datacenter = 0;  // index
  std::string http;              // address:port; empty: chosen by `troupe serve`
  bool removed = false;          // it left the cluster
  static constexpr std::size_t required = 3;

  TROUPE_FIELDS(front, name, datacenter, http, removed);
};

/// The largest for 10^9 bytes of traffic, in cluster files and from the network.
inline constexpr double max_price_per_gb = 1e6;

/// The WAN between two datacenters, the same in both directions but for its prices.
struct wan_link {
  std::uint32_t a = 0;  // index of a datacenter
  std::uint32_t b = 0;  // index of another
  double rtt_ms = 0;
  double node_gbps = 0;        // one pair of nodes with enough connections
  double connection_gbps = 0;  // one connection; 0: as much as the pair
  double jitter_ms = 0;        // emulated: maximum extra delay, random per transfer
  bool emulate = false;        // in real runs, too: the gateways delay tensors accordingly
  std::optional<std::vector<link_rate>> rates{};       // of a pair, by size, not node_gbps
  std::optional<std::vector<link_rate>> flow_rates{};  // what one GPU's flow gets at most
  /// For 10^9 bytes of tensors from a to b; none: 0.
  std::optional<double> price_per_gb{};
  std::optional<double> price_per_gb_back{};  // from b to a; none: as from a to b
  static constexpr std::size_t required = 7;

  TROUPE_FIELDS(wan_link, a, b, rtt_ms, node_gbps, connection_gbps, jitter_ms, emulate, rates,
                flow_rates, price_per_gb, price_per_gb_back);
};

/// The price of GPUs of a type in a datacenter, instead of the catalogue's.
struct gpu_price {
  gpu_index gpu = 0;                          // index of the GPU type
  std::optional<std::uint32_t> datacenter{};  // none: in all
  double per_hour = 0;                        // of one GPU, on demand
  double spot_per_hour = 0;                   // 0: there are no spot instances
  double interruptions_per_hour = 0;          // of one node of spot instances

  TROUPE_FIELDS(gpu_price, gpu, datacenter, per_hour, spot_per_hour, interruptions_per_hour);
};

/// Settings of a cluster; keys of `settings:` in the cluster file.
struct cluster_settings {
  double heartbeat_s = 1;  // minimum rate of a node's reports
  double lease_s =
      30;  // without contact for this long, a node stops its work and is considered lost
  double memory_headroom = 0;   // fraction added to memory predictions; 0: the paper's MARP
  double restart_s = 30;        // simulated: time to start or restart a job
  double checkpoint_s = 600;    // simulated: work since the last checkpoint is lost with a node
  double preempt_grace_s = 60;  // time for a training to save before it is stopped
  double grace_s = 5;           // of programs without their own: from SIGTERM to SIGKILL
  std::optional<double> time_limit_s{};  // of jobs that have none of their own
  std::optional<double> owner_mib{};     // an owner's unfinished jobs take at most this; none: 64
  static constexpr std::size_t required = 7;

  TROUPE_FIELDS(cluster_settings, heartbeat_s, lease_s, memory_headroom, restart_s, checkpoint_s,
                preempt_grace_s, grace_s, time_limit_s, owner_mib);
};

/// The description of a cluster. As loaded, nodes are in the file's order, and groups are expanded.
/// The controller's has those of its journal, in the order in which they joined: an index keeps its
/// meaning, whatever becomes of the file (actors/control/leases/roster.hpp).
struct cluster {
  std::string name;
  std::string controller;      // where the controller listens; empty: chosen by `troupe up`
  std::vector<gpu_type> gpus;  // the types that nodes have, or had, in order of first use
  std::vector<datacenter> datacenters;
  std::vector<node> nodes;
  std::vector<wan_link> wan;
  cluster_settings settings;
  std::vector<gpu_price> prices{};
  std::vector<front> fronts{};
  /// Increased by every change; only the controller's has one.
  std::uint64_t version = 0;
  static constexpr std::size_t required = 7;

  const gpu_type& gpu_of(node_index n) const { return gpus[nodes[n].gpu]; }
  TROUPE_FIELDS(cluster, name, controller, gpus, datacenters, nodes, wan, settings, prices, fronts,
                version);
};

/// The price of GPUs of a type in a datacenter; null: the catalogue's.
inline const gpu_price* price_at(const cluster& c, gpu_index gpu, std::uint32_t datacenter) {
  const gpu_price* found = nullptr;
  for (const auto& p : c.prices)
    if (p.gpu == gpu && (p.datacenter ? *p.datacenter == datacenter : !found)) found = &p;
  return found;
}

/// The price of one GPU of a node, on demand.
inline double price_per_hour(const cluster& c, node_index n) {
  const auto* p = price_at(c, c.nodes[n].gpu, c.nodes[n].datacenter);
  return p ? p->per_hour : c.gpu_of(n).price_per_hour;
}

// Defaults for WAN links that the cluster file does not list, for planners and networks.
inline constexpr double unlisted_wan_rtt_ms = 50;
inline constexpr double unlisted_wan_gbps = 1;

/// The link between two datacenters; null: not in the cluster file.
inline const wan_link* wan_between(const cluster& c, std::uint32_t a, std::uint32_t b) {
  for (const auto& w : c.wan)
    if ((w.a == a && w.b == b) || (w.a == b && w.b == a)) return &w;
  return nullptr;
}

/// The price of 10^9 bytes of tensors from one datacenter to another; 0: traffic is not priced.
inline double traffic_price_per_gb(const cluster& c, std::uint32_t from, std::uint32_t to) {
  const auto* w = wan_between(c, from, to);
  if (!w) return 0;
  const double there = w->price_per_gb.value_or(0);
  return from == w->a ? there : w->price_per_gb_back.value_or(there);
}
/// Whether some link has a price for traffic.
inline bool prices_traffic(const cluster& c) {
  return std::ranges::any_of(
      c.wan, [](const wan_link& w) { return w.price_per_gb || w.price_per_gb_back; });
}

/// Whether prices that came over the network are such.
inline bool has_valid_prices(const wan_link& w) {
  const auto is_price = [](const std::optional<double>& p) {
    return !p || (*p >= 0 && *p <= max_price_per_gb);
  };
  return is_price(w.price_per_gb) && is_price(w.price_per_gb_back);
}

/// Whether curves that came over the network are such (link_rates.hpp).
inline bool are_absent_or_rates(const std::optional<std::vector<link_rate>>& points) {
  return !points || are_rates(*points);
}
inline bool has_valid_rates(const link& l) {
  return are_absent_or_rates(l.rates) && are_absent_or_rates(l.flow_rates) &&
         (!l.group_rates || are_group_rates(*l.group_rates));
}

/// Whether some link between nodes limits what one GPU's flow gets.
inline bool has_flow_rates(const cluster& c) {
  return std::ranges::any_of(c.nodes,
                             [](const node& n) { return n.inter.flow_rates.has_value(); }) ||
         std::ranges::any_of(c.wan, [](const wan_link& w) { return w.flow_rates.has_value(); });
}

}  // namespace troupe
