#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <zmq.hpp>

#include "runtime/zeromq/host_state.hpp"
#include "runtime/zeromq/lane.hpp"

namespace troupe::runtime {

/// Connections between two hosts, at most.
inline constexpr std::uint32_t max_connections = 64;

/// The connections of a host: which lanes lead to which peer, and which routing id of the ROUTER
/// socket stands for which lane.
///
/// A class of its own because three others change it: the greeter adds and replaces lanes, the
/// frame pump finds the lane of each frame and removes broken ones, and senders look up routes from
/// any thread. Peers and the sizes of queues are under the lock; routing ids are the thread's.
///
/// Invariants: a lane with a routing id is the one that the index has for that id; the lanes of a
/// peer are numbered as its routing ids say; bytes queued for clients are the sum over their lanes.
class connection_table {
 public:
  explicit connection_table(host_state& host) : host_{host} {}

  // ---- under the lock

  /// The connection to `hop` that carries this lane; null: no such peer.
  std::shared_ptr<lane> route(address hop, std::uint32_t lane_number) const;
  /// May a frame of this size be queued? It may exceed the bytes that are left: they only close
  /// the queue for the next frame.
  bool room_for(const lane& l, std::size_t bytes) const;
  void count_queued(lane& l, std::size_t bytes);
  void count_written(lane& l, std::size_t frames, std::size_t bytes);
  /// Is the peer connected, on each of its lanes?
  bool is_open(address peer) const;
  void add_outgoing(std::shared_ptr<lane> l) { peers_[l->peer].lanes.push_back(std::move(l)); }
  /// The peer has another number than its own cluster file gave it.
  void renumber(address before, address now);
  /// Where a node listens for tensors, as it announced; null: it is not connected.
  const std::string* endpoint_of(address node) const;
  void set_endpoint(address node, std::string endpoint);

  // ---- the thread

  /// The lane for a connection that greets. A newer incarnation of the peer replaces all of its
  /// lanes; an older one is refused.
  expected<std::shared_ptr<lane>> assign(address who, std::uint64_t incarnation,
                                         const std::string& id);
  /// A number for a client: its old one if it has greeted with this routing id and key before. The
  /// client that greeted longest ago makes room.
  address client_number(const std::string& id, std::string_view key_name);
  /// Has this incarnation of a host greeted, and no newer one?
  bool is_newest(address who, std::uint64_t incarnation) const;
  /// The lane of a routing id; null: unknown.
  lane* find(const zmq::message_t& id);
  lane* find(const std::string& id) const;
  /// ZeroMQ no longer knows this routing id: drops its lane, and the peer with its last one.
  void remove(const std::string& id);

 private:
  /// The host that is, or was, connected under an address.
  struct peer {
    std::uint64_t incarnation = 0;
    std::uint64_t last_greeting = 0;  // position in the order of all greetings
    std::vector<std::shared_ptr<lane>> lanes;
    std::string endpoint;  // a node's, at its gateway: where it listens for tensors
  };

  void reset(const std::shared_ptr<lane>& l);
  std::shared_ptr<lane> new_lane(address who) const;
  void take_id(const std::shared_ptr<lane>& l, const std::string& id);

  host_state& host_;
  std::unordered_map<address, peer> peers_;  // under the lock
  std::size_t clients_queued_bytes_ = 0;     // under the lock

  std::unordered_map<std::string, std::shared_ptr<lane>> by_id_;
  std::string last_id_;  // most frames come from the same peer as the one before
  lane* last_lane_ = nullptr;
  std::map<address, std::uint64_t> newest_;  // incarnations of hosts that have greeted
  std::uint64_t greetings_ = 0;
  address next_client_ = first_client_address + 1;
  std::size_t clients_ = 0;
  std::shared_ptr<unsent_bytes> clients_unsent_ = std::make_shared<unsent_bytes>();
};

}  // namespace troupe::runtime
