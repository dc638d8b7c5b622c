#pragma once

#include <cstdint>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/link_cost.hpp"
#include "planners/cluster/idle_index.hpp"

namespace troupe::planners {

/// The links that stages on idle GPUs may have, by kind of GPU, for times that no placement goes
/// below. Keeps references to the cluster.
class link_floors {
 public:
  /// `kind_of`: of each node with idle GPUs, below `kinds`. `connections`: of a pair of nodes over
  /// the WAN, as in pipeline_wish.
  link_floors(const cluster& c, const idle_index& idle, const std::vector<std::uint32_t>& kind_of,
              std::size_t kinds, std::uint32_t connections);

  /// Sizes of a tensor, at least and at most.
  struct tensor_sizes {
    double min = 0, max = 0;
  };
  /// GPUs of one kind in one datacenter.
  struct place {
    std::uint32_t kind = 0, datacenter = 0, tensor = 1;
  };
  /// The shortest send inside a datacenter from a stage of `tensor` GPUs to any other, latency
  /// included; 0: none is known.
  double send_s(std::uint32_t kind, std::uint32_t tensor, const tensor_sizes& sizes) const;
  /// The shortest one to such a stage from one of at most `flows` GPUs.
  double receive_s(std::uint32_t kind, std::uint32_t flows, const tensor_sizes& sizes) const;
  /// The same from and to other nodes; infinite: there is none in any datacenter.
  double leaving_send_s(std::uint32_t kind, std::uint32_t tensor, const tensor_sizes& sizes) const;
  double leaving_receive_s(std::uint32_t kind, std::uint32_t flows,
                           const tensor_sizes& sizes) const;
  /// The longest send of at most that many bytes from a GPU of a kind inside a datacenter, or over
  /// the WAN from any: an upper bound.
  double longest_send_s(std::uint32_t kind, double bytes) const;
  double longest_crossing_s(double bytes) const;
  /// The same inside a node.
  double longest_inside_s(std::uint32_t kind, double bytes) const;
  /// The shortest send over the WAN from a stage of `tensor` GPUs; infinite: there is no WAN.
  double crossing_s(std::uint32_t kind, std::uint32_t tensor, const tensor_sizes& sizes) const;
  /// The shortest send between two places of a datacenter, which may be of one node.
  double send_s(const place& from, const place& to, double bytes) const;
  /// The send between two datacenters as the closed form has it, without what hosts handle.
  double crossing_s(const place& from, const place& to, double bytes) const;
  double crossing_latency_s(std::uint32_t a, std::uint32_t b) const;

  /// A sum's rates: the fastest ones, in bytes/s, of a kind's cards and of the WAN for `flows`
  /// flows; and the shortest latency of the WAN.
  double card_bytes_s(std::uint32_t kind) const { return cards_[kind]; }
  double wan_bytes_s(std::uint32_t flows) const;
  double wan_latency_s() const { return wan_latency_s_; }
  /// Cards with other rates that nodes of a kind, or of any, have in one datacenter, at most.
  std::uint32_t unlike_cards(std::uint32_t kind) const { return unlike_of_kind_[kind]; }
  std::uint32_t unlike_cards() const { return unlike_; }
  /// Whether some node reaches peers on other nodes over `intra`.
  bool has_domains() const { return has_domains_; }

 private:
  /// Two nodes, or one that has `room` idle GPUs.
  struct lan_link {
    link_cost link;
    std::uint32_t from = 0, to = 0, datacenter = 0;
    bool inside = false;
    std::uint32_t room = 0;
  };
  struct wan_pair {
    link of;
    std::uint32_t a = 0, b = 0;
    std::vector<bool> kinds;  // of both ends
  };
  const wan_pair* pair(std::uint32_t a, std::uint32_t b) const;

  std::vector<lan_link> lan_;
  std::vector<wan_pair> wan_;
  double wan_latency_s_ = 0;
  mutable std::vector<double> wan_bytes_s_;  // by flows; below 0: not known
  std::vector<double> cards_;                // by kind
  std::vector<std::uint32_t> unlike_of_kind_;
  std::uint32_t unlike_ = 1;
  bool has_domains_ = false;
};

}  // namespace troupe::planners
