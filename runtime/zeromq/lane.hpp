#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <zmq.hpp>

#include "messages/base/invariant.hpp"
#include "messages/wire/frame.hpp"
#include "runtime/host/transport.hpp"

// One connection: its queues and its credit (engine.hpp has the overview).

namespace troupe::runtime {

struct lane;

/// The receiving side of a lane since its last greeting: counts frames that have arrived, have been
/// handled, and have been credited to the sender.
class inbox {
 public:
  inbox(std::weak_ptr<lane> over, caller from, std::uint32_t grant_frames, std::size_t grant_bytes)
      : over_{std::move(over)},
        from_{std::move(from)},
        grant_frames_{grant_frames},
        grant_bytes_{grant_bytes} {}

  const std::weak_ptr<lane>& over() const { return over_; }
  const caller& from() const { return from_; }

  /// On the transport's thread, which alone receives.
  void arrived() { ++arrived_; }

  /// Frames that have arrived and are not credited yet, handled or not.
  std::uint64_t uncredited() const { return arrived_ - granted_.load(std::memory_order_relaxed); }

  /// Counts a frame as handled, from any thread. Gives how many frames to credit now; mostly 0,
  /// because credit is granted in batches.
  std::uint32_t handled(std::size_t bytes) {
    const auto add = one_frame | (std::uint64_t{bytes} & (one_frame - 1));
    const auto now = done_.fetch_add(add, std::memory_order_relaxed) + add;
    if (now / one_frame < grant_frames_ && now % one_frame < grant_bytes_) return 0;
    const auto frames = done_.exchange(0, std::memory_order_relaxed) / one_frame;
    granted_.fetch_add(frames, std::memory_order_relaxed);
    return static_cast<std::uint32_t>(frames);
  }

 private:
  static constexpr std::uint64_t one_frame = std::uint64_t{1} << 40;  // bytes below, frames above

  std::weak_ptr<lane> over_;
  caller from_;
  std::uint32_t grant_frames_;
  std::size_t grant_bytes_;
  std::uint64_t arrived_ = 0;
  std::atomic<std::uint64_t> granted_{0};
  alignas(64) std::atomic<std::uint64_t> done_{0};  // by other threads, for every frame
};

/// Counts the bytes that ZeroMQ holds for a connection and has not written to the network yet,
/// which bounds the memory that a peer which does not read can use. Optionally adds them to a
/// total, too.
class unsent_bytes {
 public:
  explicit unsent_bytes(std::shared_ptr<unsent_bytes> whole = {}) : whole_{std::move(whole)} {}
  void add(std::size_t n) {
    bytes_ += n;
    if (whole_) whole_->add(n);
  }
  void remove(std::size_t n) {
    bytes_ -= n;
    if (whole_) whole_->remove(n);
  }
  std::size_t now() const { return bytes_; }

 private:
  std::shared_ptr<unsent_bytes> whole_;
  std::atomic<std::size_t> bytes_{0};
};

/// A connection to one peer, in both directions.
struct lane {
  address peer = 0;
  caller who{"", false};   // behind it, if it connected here
  std::size_t dealer = 0;  // which upstream socket, if routing_id is empty
  std::string routing_id;  // the peer's, if it connected here
  bool batches = false;    // the peer understands many frames in one
  bool direct = false;     // between two nodes of a datacenter: for tensors, in one direction
  std::shared_ptr<unsent_bytes> unsent = std::make_shared<unsent_bytes>();

  std::atomic<bool> open{false};  // both sides have greeted

  // Shared with senders, under the transport's lock.
  std::size_t queued_frames = 0, queued_bytes = 0;  // fresh, taken or waiting
  std::vector<frame> fresh;
  bool dirty = false;  // listed as having fresh ones

  // The transport's thread alone.
  std::vector<frame> taken;  // fresh ones, swapped out under the lock
  std::deque<frame> waiting;
  std::deque<std::size_t> uncredited;  // sizes of frames sent and not credited yet
  std::size_t uncredited_bytes = 0;
  std::shared_ptr<inbox> in;

  // A frame may be larger than the window: bytes only close the window for the next frame.
  bool may_send(std::uint32_t window_frames, std::size_t window_bytes) const {
    return uncredited.size() < window_frames && uncredited_bytes < window_bytes;
  }

  void sent(std::size_t bytes) {
    uncredited.push_back(bytes);
    uncredited_bytes += bytes;
  }

  void credited(std::uint32_t frames) {
    for (; frames > 0 && !uncredited.empty(); --frames) {
      TROUPE_INVARIANT(uncredited_bytes >= uncredited.front(),
                       "the bytes of one frame are among all that are not credited");
      uncredited_bytes -= uncredited.front();
      uncredited.pop_front();
    }
  }

  /// After every greeting: both sides count from zero.
  void restart(std::shared_ptr<inbox> fresh_inbox) {
    uncredited.clear();
    uncredited_bytes = 0;
    in = std::move(fresh_inbox);
    open = true;
  }
};

/// A received frame whose payloads own ZeroMQ's messages, and which remembers its lane.
frame received_frame(zmq::message_t header, zmq::message_t body, std::shared_ptr<inbox> from);

/// Several small frames as one ZeroMQ message, which costs as much as one of them: its header is a
/// byte that no frame starts with, its body the frames' headers, each after its length (32 bits,
/// little-endian).
struct batch {
  zmq::message_t header, body;
};

inline std::span<const std::byte> bytes_of(const zmq::message_t& m) {
  return {static_cast<const std::byte*>(m.data()), m.size()};
}

/// How many frames from the front may travel as one batch, at most `most`; 1: none.
std::size_t batchable(const std::deque<frame>& waiting, std::size_t max);
batch make_batch(const std::deque<frame>& waiting, std::size_t frames);
bool is_batch(const zmq::message_t& header);

/// The frames of a batch; they share its bytes. Nothing if its lengths are inconsistent.
std::optional<std::vector<frame>> frames_of(zmq::message_t body, std::shared_ptr<inbox> from);

/// The inbox that a frame came through, as long as the frame is there; null if it came from
/// elsewhere.
const std::shared_ptr<inbox>* inbox_of(const frame& f);

/// A message for ZeroMQ with the payload's bytes; shares the bytes if they are many, or if `all`
/// are to be counted. What is shared counts as unsent until ZeroMQ lets go of it.
zmq::message_t outgoing_message(const payload& p, const std::shared_ptr<unsent_bytes>& unsent,
                                bool all);

}  // namespace troupe::runtime
