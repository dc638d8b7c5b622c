#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "actors/gateway/retry_queue.hpp"
#include "actors/gateway/slot_table.hpp"
#include "actors/gateway/stripe_reassembler.hpp"
#include "actors/gateway/striping.hpp"
#include "actors/gateway/transfer.hpp"
#include "actors/gateway/wan_arbiter.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/wire/work.hpp"
#include "runtime/host/link_pacing.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// The WAN's properties in a gateway's world (real or virtual).
struct wan_options {
  /// Transfer times of the links that are paced.
  std::shared_ptr<runtime::link_pacing> pacing;
  /// Polls at one instant until the arbiter chooses a transfer (wan_arbiter).
  std::uint32_t rounds = 0;
};

/// The data plane of a gateway: forwards the frames of its datacenter's nodes and transfers their
/// tensors over the WAN.
///
///   frame of a local node, for another datacenter:
///     route -> wan_arbiter (order) -> link_pacing (time; unpaced: none) -> stripes
///           -> retry_queue (back-pressure) -> transport
///   stripe from another gateway:
///     stripe_reassembler -> retry_queue -> transport -> local node
///   tensor between local nodes that cannot reach each other directly:
///     retry_queue -> transport -> local node
///   anything else: forwarded at once; to another datacenter after the link's delay, if paced
///
/// Each part has a class of its own; this one connects them and owns the frames (slot_table, by
/// token). transfer_state has the states of a frame.
///
/// - A tensor with a body crosses as stripes, over the lanes of its path. A simulated tensor, which
///   has no body, takes the time of its `bytes` and is then forwarded unchanged.
/// - On a link that is not paced a transfer has left when the transport has accepted its last
///   stripe.
/// - A tensor that a stage resends while the first copy is still here, or may still arrive (twice
///   the link's delay), is dropped.
/// - Flow control: a node's frame is acknowledged, which is its credit to send another, when its
///   transfer has left; at most max_in_flight frames of a node are unacknowledged here. Stripes for
///   a slow node are not acknowledged to the other gateway until its queue is short again.
///   Heartbeats are not delayed by either: they use another connection.
/// - A tensor that is dropped for any reason is requested again by the receiving stage.
///
/// Precondition of all calls: the time of the host's clock does not decrease.
class tensor_router {
 public:
  static constexpr std::uint32_t max_in_flight = 512;         // of a node's frames
  static constexpr std::uint32_t max_transfers = 1U << 16;    // in all
  static constexpr std::uint32_t max_parts = 4096;            // of a transfer
  static constexpr std::uint64_t slow_node_bytes = 64 << 20;  // queued: stripes are held back
  static constexpr time_ns retry_every = 2'000'000;

  tensor_router() = default;
  tensor_router(runtime::host h, shared_cluster c, wan_options wan);

  /// Hosts have joined, or links have changed.
  void follow_cluster();

  /// A frame for another host, or a stripe for this one. The router calls the transport's
  /// handled() for it, at once or later.
  void on_frame(const envelope& e, const frame& f);

  /// When on_event_due() has something to do; never_ns: not before another frame arrives.
  time_ns next_event_at() const;
  void on_event_due();

  /// Every heartbeat: drops expired frames and forgets idle flows and links.
  void on_tick();

  /// Bytes of tensors since the start.
  const gateway_traffic& traffic() const { return traffic_; }

 private:
  using tensor_key = std::tuple<stage_name, std::uint32_t, std::uint32_t, tensor::kind,
                                std::uint64_t, std::uint32_t>;
  struct transfer {
    /// A tensor over the WAN, without a body or as stripes; another frame over the WAN; a tensor to
    /// a local node.
    enum class kind : std::uint8_t { simulated, striped, small, delivery };
    kind is = kind::delivery;
    frame f;
    address from = 0, to = 0;
    transfer_state state;
    tensor header;  // of tensors over the WAN
    stripe_layout layout;
    stripe_numbers::number number;
    bool listed = false;  // in crossing_: resends are dropped
  };

  time_ns now() const;
  std::uint32_t datacenter_of(address node) const;
  bool is_local(address node) const;
  bool is_full() const { return transfers_.size() >= max_transfers; }
  std::uint32_t hold(transfer t);
  void release(std::uint32_t token, bool dropped = false);
  void give_credit(transfer& t);
  bool list_crossing(transfer& t);

  void forward(address to, const frame& f, std::uint32_t lane = 0);
  void deliver(const envelope& e, const frame& f);
  void send_small(const envelope& e, const frame& f);
  void send_over_wan(const envelope& e, const frame& f);
  void count_to(std::optional<std::vector<std::uint64_t>>& counts, std::uint32_t datacenter,
                std::uint64_t bytes);
  void on_stripe(const envelope& e, const frame& f);

  void start_transfers();
  void start(std::uint32_t token);
  void on_link_event(const runtime::link_pacing::event& e);
  void send_part(std::uint32_t token, std::uint32_t part);
  void send_stripes(std::uint32_t token, std::uint32_t part);
  void on_frame_gone(std::uint32_t token);
  void release_if_over(std::uint32_t token);
  void retry(time_ns too_old);

  runtime::host host_;
  shared_cluster cluster_;
  std::uint32_t datacenter_ = 0;
  std::shared_ptr<runtime::link_pacing> pacing_;
  wan_arbiter arbiter_;
  retry_queue retry_queue_;
  stripe_reassembler reassembler_;
  stripe_numbers numbers_;
  slot_table<transfer> transfers_;        // by token
  std::vector<std::uint32_t> unhandled_;  // unacknowledged frames, by node
  /// Tensors whose resends are dropped, until that time; never_ns: while they are here.
  std::map<tensor_key, time_ns> crossing_;
  std::map<address, std::vector<frame>> held_back_;  // unacknowledged stripes, by slow node
  gateway_traffic traffic_;
};

}  // namespace troupe::actors
