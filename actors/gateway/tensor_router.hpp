#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "actors/gateway/retry_queue.hpp"
#include "actors/gateway/stripe_reassembler.hpp"
#include "actors/gateway/wan_arbiter.hpp"
#include "messages/cluster.hpp"
#include "messages/work.hpp"
#include "runtime/host/host.hpp"

namespace troupe::actors {

/// Tensor routing at a gateway: when tensors may cross (wan_arbiter), striping and reassembly
/// (stripe_reassembler), and back-pressure towards the senders.
///
/// - A tensor with a body crosses as stripes, over as many lanes as its share has connections. A
///   simulated tensor without a body takes the time of its `bytes` and then crosses unchanged.
/// - The link's rates and delay apply in virtual time, and where the cluster file says `emulate`;
///   otherwise a transfer has left when the transport has accepted its last stripe.
/// - What a stage resends while the first copy is still here, or has just left, is dropped.
/// - A node's frame is acknowledged, and the node may send another, when its transfer has left; a
///   node has at most max_in_flight unacknowledged frames here. Heartbeats are not delayed: they
///   use another connection.
class tensor_router {
 public:
  static constexpr std::uint32_t max_in_flight = 512;         // of a node's frames
  static constexpr std::uint32_t max_transfers = 1U << 16;    // in all
  static constexpr std::uint64_t stripe_bytes = 512 << 10;    // no more than about that
  static constexpr std::uint64_t min_stripe_bytes = 4096;     // nor less
  static constexpr std::uint64_t slow_node_bytes = 64 << 20;  // waiting: more stripes must wait
  static constexpr time_ns retry_every = 2'000'000;

  tensor_router() = default;
  tensor_router(runtime::host h, std::shared_ptr<const troupe::cluster> c, bool virtual_time,
                link_slowdown slow_links = {});

  /// A frame that arrived for another host. The router notifies the transport when it is handled.
  void arrived(const envelope& e, const frame& f);

  /// Time of the next event; never: none before another frame.
  time_ns next() const;
  void look();

  /// Periodic cleanup: drops what nobody can still want.
  void tidy();

  /// Of tensors, since the start.
  const gateway_traffic& traffic() const { return traffic_; }
  const stripe_reassembler::counts& gathered() const { return gatherer_.count(); }
  std::uint64_t dropped() const { return dropped_; }

 private:
  using transfer_key = std::tuple<stage_name, std::uint32_t, std::uint32_t, tensor::kind,
                                  std::uint64_t, std::uint32_t>;
  enum class kind : std::uint8_t { none, simulated, striped, small, delivery };
  struct held {
    frame f;
    tensor what;  // striped
    kind is = kind::none;
    bool credited = false, left = false, through = false;
    address from = 0, to = 0;
    std::uint32_t first_lane = 1, lanes = 1, parts = 1, unsent = 0;
    std::uint64_t epoch = 0, number = 0;
    bool numbered = false;
    transfer_key key{};  // simulated and striped
    bool listed = false;
  };
  struct numbering {
    std::uint64_t epoch = 0, next = 0;
    time_ns last_used = 0;
  };
  using flow_key = std::tuple<lease_id, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

  time_ns now() const;
  std::uint32_t datacenter_of(address node) const;
  link_rates rates_to(std::uint32_t datacenter) const;
  bool is_mine(address node) const;
  std::uint32_t hold(kind is, const frame& f, address from, address to);
  void free(std::uint32_t token);
  void credit(held& h);
  bool list(std::uint32_t token, const tensor& t);
  void drop(const frame& f);

  void leaves(const envelope& e, const frame& f);
  void crosses(const envelope& e, const frame& f, tensor t);
  void small(const envelope& e, const frame& f);
  void deliver(const envelope& e, const frame& f);
  void gather(const envelope& e, const frame& f);

  void happen(const wan_arbiter::event& e);
  void send_simulated(held& h);
  void send_stripes(std::uint32_t token, std::uint32_t part);
  void number(held& h);
  void gone(std::uint32_t token);
  void settle(std::uint32_t token);
  void retry(time_ns too_old);

  runtime::host host_;
  std::shared_ptr<const troupe::cluster> cluster_;
  link_slowdown slow_links_;
  std::uint32_t site_ = 0;
  std::vector<link_rates> wan_;  // to each datacenter
  wan_arbiter door_;
  retry_queue retry_queue_;
  stripe_reassembler gatherer_;
  std::vector<held> held_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> held_of_;  // a node each: its frames that are not handled yet
  std::map<flow_key, numbering> numbers_;
  /// Tensors that are here, or left no longer ago than a request takes: until when.
  std::map<transfer_key, time_ns> crossing_;
  std::map<address, std::vector<frame>> slow_;  // stripes that are not handled, by receiving node
  std::uint64_t dropped_ = 0;
  gateway_traffic traffic_;
};

}  // namespace troupe::actors
