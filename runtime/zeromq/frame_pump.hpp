#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <zmq.hpp>

#include "messages/wire/frame.hpp"
#include "runtime/zeromq/connection_table.hpp"
#include "runtime/zeromq/sockets.hpp"

namespace troupe::runtime {

/// Moves frames from senders' queues to the sockets, as far as credit allows, and from the sockets
/// to the receiver.
///
/// A class of its own because it is the hot path and all there is to credit: what a connection is
/// and when it is open is decided elsewhere. A sender appends to a lane's `fresh` under the lock;
/// the thread takes all fresh frames of all lanes in one swap per round, so that the lock is taken
/// once per burst and not once per frame.
class frame_pump {
 public:
  frame_pump(host_state& host, connection_table& table, sockets& all)
      : host_{host}, table_{table}, sockets_{all} {}

  // ---- any thread, under the lock

  /// False: no route, or too much is queued; the frame is dropped and counted.
  bool enqueue(address hop, frame f, std::uint32_t lane_number);
  bool enqueue(const std::shared_ptr<lane>& l, frame f);
  /// Returns credit for frames of this inbox with the next round.
  void grant(std::shared_ptr<inbox> in, std::uint32_t frames);
  bool has_work() const { return !dirty_.empty() || !credits_.empty(); }

  // ---- the thread

  void receive_with(transport::receiver r) { receiver_ = std::move(r); }
  /// Takes what senders have queued, writes it, and returns credit; removes broken connections.
  void send_queued();
  bool has_blocked() const { return !blocked_.empty(); }

  void flush(lane& l);
  bool write(lane& l, const frame& f);
  void on_batch(lane& l, zmq::message_t body);
  /// A frame of a valid source goes to the receiver; others are counted and dropped.
  void on_frame(lane& l, const envelope& e, frame f);
  void on_credit(lane& l, const zmq::message_t& header);
  /// Drops a frame and returns the credit that it took.
  void discard(lane& l, host_state::count why, std::size_t bytes);
  /// Drops a frame that does not decode; a client is told why.
  void refuse_frame(lane& l, const reason& why, std::size_t bytes);
  /// A new receiving side, for a lane that has just been greeted.
  std::shared_ptr<inbox> fresh_inbox(const std::shared_ptr<lane>& l) const;

 private:
  /// Frames handled since the last credit message.
  struct credit_grant {
    std::shared_ptr<inbox> in;
    std::uint32_t frames = 0;
  };

  void send_credits();
  void flush_blocked();
  bool write(lane& l, zmq::message_t header, zmq::message_t body);
  bool may_write(const lane& l) const;
  void mark_blocked(const lane& l);
  bool is_valid_source(const lane& l, const envelope& e) const;
  std::optional<reason> unreadable(const lane& l, const frame& f) const;
  void deliver(lane& l, frame f);

  host_state& host_;
  connection_table& table_;
  sockets& sockets_;
  transport::receiver receiver_;

  std::vector<std::shared_ptr<lane>> dirty_;  // under the lock, as the next
  std::vector<credit_grant> credits_;

  std::vector<std::shared_ptr<lane>> lanes_to_flush_;
  std::vector<credit_grant> credits_to_send_;
  std::vector<std::string> broken_;   // routing ids that ZeroMQ no longer knows
  std::vector<std::string> blocked_;  // routing ids whose ZeroMQ queue is full
};

}  // namespace troupe::runtime
