#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "messages/wire/frame.hpp"
#include "messages/wire/prefill.hpp"

namespace troupe::actors {

/// The blocks of one prefill on their way from one guest to one receiver: hidden states to the next
/// guest, or those to the decoder. Keeps them until the receiver states that it has them, and sends
/// again what may have been lost. Pure: times are arguments, in seconds on one clock.
class block_sender {
 public:
  /// In prefill_block::bytes, sent and not yet stated as received. One block may always be under
  /// way, however large.
  static constexpr std::uint64_t default_window = std::uint64_t{2} << 20;
  static constexpr double shortest_resend_s = 0.05;
  static constexpr double round_trips = 3;  // until a block counts as lost

  explicit block_sender(std::uint64_t window_bytes = default_window) : window_{window_bytes} {}

  /// The next block: header.index must be size(). Sets its hash; `blocks` is the first one's. Once
  /// it is done, blocks are ignored.
  void add(prefill_block header, payload body, double now_s);

  struct outgoing {
    prefill_block header;  // its progress as of now
    payload body;
  };
  /// Those to be sent now: new ones within the window, and those that count as lost. They count as
  /// sent.
  std::vector<outgoing> take_due(double now_s);

  /// The receiver's state. Claims about blocks that were not sent yet are ignored.
  void on_received(const blocks_received& r, double now_s);

  /// The receiver has all blocks, or needs no more.
  bool done() const { return done_; }
  /// When take_due() has something to send again, if nothing is stated until then; `never`: there
  /// is nothing under way.
  double next_due_s() const;

  std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()); }
  std::uint64_t resent() const { return resent_; }       // blocks
  double round_trip_s() const { return round_trip_s_; }  // measured; 0: not yet

 private:
  struct block {
    prefill_block header;
    payload body;
    double added_s = 0, sent_s = 0;
    std::uint32_t times = 0;  // sent
    bool received = false;
  };
  double resend_after_s() const;
  outgoing send(block& b, double now_s);
  void receive(block& b, double now_s);

  std::uint64_t window_;
  std::vector<block> blocks_;
  std::set<std::uint32_t> under_way_;  // sent, not received
  std::size_t next_ = 0;               // of those that were never sent
  std::uint32_t received_ = 0;
  std::uint64_t under_way_bytes_ = 0, resent_ = 0;
  double round_trip_s_ = 0;
  double patience_ = 1;  // doubled when blocks are sent again, until a round trip is measured
  bool done_ = false;
};

}  // namespace troupe::actors
