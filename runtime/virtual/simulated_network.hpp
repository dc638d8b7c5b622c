#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "messages/base/fair_share.hpp"
#include "messages/base/flow_share.hpp"
#include "messages/base/random.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/faults.hpp"
#include "messages/domain/link_cost.hpp"
#include "runtime/host/fingerprint.hpp"
#include "runtime/host/transport.hpp"
#include "runtime/virtual/virtual_coordinator.hpp"

// A model of the real network with what the actors can notice of it: connections with credit,
// latency and bandwidth; a WAN direction whose transfers share its rate; a node's card whose
// tensors share it by flow and whose prefill blocks use it only while no tensor does; partitions,
// loss, duplication and reordering. It does not model TCP: a frame is lost whole, and a lost one is
// not sent again.
//
// A frame is a flight from its departure to its arrival. Flights, connections and endpoints are
// kept in arrays and named by index, so that a frame needs no allocation of its own.

namespace troupe::runtime {

/// The fates of all frames that were sent; a frame counts once for every hop.
struct network_counters {
  std::uint64_t sent = 0;       // handed to send by a living host
  std::uint64_t delivered = 0;  // handed to a receiver
  std::uint64_t lost = 0;       // by the fault plan's loss
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  std::uint64_t cut = 0;          // by a partition, on the way or before
  std::uint64_t unreachable = 0;  // the next hop was not there, or another incarnation of it
  std::uint64_t refused = 0;      // for want of credit

  std::uint64_t dropped() const { return lost + cut + unreachable + refused; }
};

/// The links between the hosts of a virtual run. A frame goes to the next hop only (address.hpp); a
/// tensor for a node of the same datacenter directly there, unless a partition is between the two.
///
/// Latency: within a datacenter a node's `inter`, or 50 us; half the round trip between
/// datacenters; 0.1 ms between a client and the controller, which is in the first datacenter.
/// Bandwidth: a node's `inter` for each frame by itself; between datacenters, all frames of one
/// direction share `node_gbps`, and one frame gets at most `connection_gbps`. A short frame can
/// overtake a long one, as on several connections.
///
/// A tensor from one node to another of its datacenter takes its time (link_cost.hpp) when it
/// leaves the node, by the bytes that its header names, directly or not, and shares the node's link
/// with all other tensors that leave it. Those for other datacenters gateways hold back by
/// themselves. Nothing else is charged for tensors between a node and its gateway, nor between
/// gateways.
///
/// A prefill_block takes its time in the same way, but behind all tensors that leave its node: one
/// after the other, while no tensor does. Tensors are never later because of them.
class simulated_network final : private virtual_coordinator::listener {
 public:
  static constexpr double site_latency_s = unlisted_lan_latency_us * 1e-6;
  static constexpr double site_gbps = unlisted_lan_gbps;
  static constexpr double client_latency_s = 100e-6;

  /// `credit_frames`: how many frames that are not handled yet a host may have sent to the next
  /// one; 0: any number.
  simulated_network(virtual_coordinator& time, const cluster& c, const fault_plan& faults,
                    random_source random, std::uint32_t credit_frames);

  /// A host is there from now on; what was on the way to an earlier incarnation of it will be lost.
  std::shared_ptr<transport> open(address a);

  /// Loses frames beside what the fault plan does: those of which it holds.
  void lose(std::function<bool(address from, address to, const frame&)> which) {
    loses_ = std::move(which);
  }

  /// The host is gone. What it still sends goes nowhere.
  void close(address a);

  const network_counters& counters() const { return counters_; }
  std::uint64_t fingerprint_so_far() const { return fingerprint_.value(); }
  const random_source& random() const { return random_; }

 private:
  class door;

  static constexpr address no_host = ~address{0};
  static constexpr std::uint32_t unknown_host = ~std::uint32_t{0};

  struct endpoint {
    address self = 0;
    std::uint64_t generation = 0;  // of the living incarnation; even: the host is down
    std::unique_ptr<const transport::receiver> receiver;
    std::unordered_map<address, std::uint32_t>
        connections;  // by next hop; looked up, never iterated
    // The latest of these that was asked for, and of those that lead here.
    address last_to = no_host, last_from = no_host;
    std::uint32_t last_out = 0, last_in = 0;
    std::vector<std::uint8_t> sides;  // of each partition: 1 in a, 2 in b
  };

  /// One direction between two hosts.
  struct connection {
    std::uint32_t from = 0, to = 0;  // endpoints
    time_ns latency = 0;
    double ns_per_byte = 0;
    std::int32_t wan = -1;               // shared link, or none
    std::uint32_t unhandled = 0;         // frames, without
    std::uint32_t unhandled_blocks = 0;  // of prefills, whose lane has credit of its own
    bool of_node = false;                // tensors have rules of their own
  };

  /// One direction between two datacenters. While one transfer has it alone, which is the rule for
  /// control frames, its delivery is simply scheduled; sharing begins when a second one comes.
  struct wan_direction {
    fair_share share;
    std::uint32_t alone = 0;  // flight
    double alone_bytes = 0;
    time_ns alone_from = 0, alone_until = 0;
    virtual_coordinator::event_id alone_delivery = {};
    virtual_coordinator::event_id next_end = {};
    time_ns next_end_at = never_ns;
  };

  /// A block that waits for a node's link, or has it.
  struct waiting_block {
    std::uint32_t flight = 0;
    time_ns left = 0;  // on the link
  };

  /// A node's link to others of its datacenter: tensors share it, by sending and receiving stage;
  /// of the blocks the first has it while no tensor does.
  struct network_card {
    flow_share<std::array<std::uint64_t, 5>> share;
    virtual_coordinator::event_id next_end = {};
    time_ns next_end_at = never_ns;
    std::deque<waiting_block> blocks;
    std::optional<time_ns> block_since;  // it has the link since then; none: it waits
    virtual_coordinator::event_id block_end = {};
  };

  /// A frame on its way.
  struct flight {
    frame content;
    std::uint32_t via = 0;  // connection
    bool block = false;     // of a prefill: counts for the connection's blocks
    std::uint64_t to_generation = 0;
    time_ns latency = 0;  // after a shared link
    time_ns extra = 0;    // reordering's
  };

  void fire(std::uint64_t token) override;
  // Random numbers are drawn last, and only where faults are on: a run without faults draws none.
  bool send(std::uint32_t endpoint_index, std::uint64_t generation, address to, frame f,
            std::uint32_t lane);
  std::uint32_t route(std::uint32_t from, address to, std::uint32_t lane);
  // Credit returns at once, without a message of its own.
  void handled(std::uint32_t endpoint_index, std::uint64_t generation, const frame& f);
  // Three kinds of ways: over a WAN direction that all share; from a node's card, for tensors and
  // blocks; and by the connection's own latency and rate, for all else.
  void depart(std::uint32_t flight_index);
  void depart_tensor(std::uint32_t flight_index, address from, address to);
  void depart_block(std::uint32_t flight_index, address from, address to);
  void give_link_to_block(node_index n);
  void end_block(node_index n);
  // A single transfer on a direction needs one event. A second one that comes before its end turns
  // the rest of both into shared transfers.
  void join_wan(std::uint32_t flight_index, const connection& c, double bytes);
  template <class Link>
  void wake(Link& link, std::uint64_t token);
  template <class Link>
  void schedule(Link& link, std::uint64_t token);
  // The fingerprint has every delivered frame: time, hosts, sizes, bytes.
  void arrive(std::uint32_t flight_index);

  std::uint32_t endpoint_of(address a);
  std::uint32_t add_endpoint(address a);
  std::uint32_t connect_first(std::uint32_t from, address to);
  // A receiver that closes its own host must not be destroyed while it runs.
  void retire(endpoint& e);
  std::uint32_t connect(std::uint32_t from, address to);
  void describe(connection& c);
  std::uint32_t new_flight(frame f, std::uint32_t via, bool block);
  static std::uint32_t& unhandled_of(connection& c, bool block) {
    return block ? c.unhandled_blocks : c.unhandled;
  }
  std::uint32_t site_of(address a) const;
  // A host is on side a, b, both or neither of a partition; b without names is everyone else.
  void place_in_partitions(endpoint& e) const;
  bool faulty_now() const;
  // At departure and at arrival: a partition also takes frames that are on the way when it begins.
  bool cut(const connection& c) const;
  time_ns random_delay();

  virtual_coordinator& time_;
  const cluster& cluster_;
  const fault_plan& faults_;
  std::function<bool(address, address, const frame&)> loses_;
  random_source random_;
  std::uint32_t credit_frames_;
  bool random_faults_ = false;
  std::vector<std::uint32_t> by_number_;  // endpoints of the cluster's own hosts, or unknown_host
  std::unordered_map<address, std::uint32_t> by_address_;  // and all others'; never iterated
  std::deque<endpoint> endpoints_;  // deques: a receiver may send, and add new ones
  std::deque<connection> connections_;
  std::vector<wan_direction> wan_;
  std::vector<network_card> cards_;  // of nodes
  std::vector<flight> flights_;
  std::vector<std::uint32_t> free_flights_;
  // A host can end while it receives: its receiver lives until that call has returned.
  bool receiving_ = false;
  std::vector<std::unique_ptr<const transport::receiver>> retired_;
  network_counters counters_;
  fingerprint fingerprint_;
};

/// Whether a host is meant by a name of a fault plan: its own, or its datacenter's.
bool is_meant(const cluster& c, address a, const std::string& name);

}  // namespace troupe::runtime
