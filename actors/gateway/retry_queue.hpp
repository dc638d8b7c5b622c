#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"
#include "runtime/host/transport.hpp"

namespace troupe::actors {

/// Frames that the transport did not accept for lack of credit, queued until it does. Frames to one
/// host on one lane stay in order; a full lane does not block the others. The queue is bounded in
/// bytes and frames, and frames expire: their receiver has requested them again by then.
class retry_queue {
 public:
  static constexpr std::uint64_t max_bytes = std::uint64_t{4} << 30;
  static constexpr std::size_t max_frames = std::size_t{1} << 17;

  explicit retry_queue(std::shared_ptr<runtime::transport> net = {}) : net_{std::move(net)} {}

  /// sent: the transport has accepted it. waits: queued; retry() calls `gone` with its tag. lost:
  /// the queue is full, and the frame was dropped.
  enum class fate { sent, waits, lost };
  fate send(time_ns now, address to, frame f, std::uint32_t lane, std::uint32_t tag) {
    const auto at = queues_.empty() ? queues_.end() : queues_.find({to, lane});
    if (at == queues_.end() && net_->send(to, f, lane)) return fate::sent;
    if (bytes_ + f.size() > max_bytes || frames_ >= max_frames) return fate::lost;
    bytes_ += f.size();
    bytes_to_[to] += f.size();
    ++frames_;
    TROUPE_INVARIANT(bytes_ <= max_bytes && frames_ <= max_frames,
                     "the frames that wait for credit are bounded");
    TROUPE_INVARIANT(bytes_to_[to] <= bytes_, "what waits for one host is among all that waits");

    queues_[{to, lane}].push_back({std::move(f), tag, now});
    return fate::waits;
  }

  /// Offers queued frames to the transport again, and drops those queued before `too_old`. Calls
  /// `gone(tag)` for each frame that leaves the queue, for either reason.
  template <class F>
  void retry(time_ns too_old, F&& gone) {
    for (auto at = queues_.begin(); at != queues_.end();) {
      const auto [to, lane] = at->first;
      auto& q = at->second;
      TROUPE_INVARIANT(!q.empty(), "a queue that is listed has frames");
      while (!q.empty() && (q.front().since < too_old || net_->send(to, q.front().what, lane))) {
        const auto size = q.front().what.size();
        const auto tag = q.front().tag;
        q.pop_front();
        TROUPE_INVARIANT(frames_ > 0 && bytes_ >= size && bytes_to_[to] >= size,
                         "frames leave the queue that entered it, and their bytes with them");
        bytes_ -= size;
        bytes_to_[to] -= size;
        --frames_;
        gone(tag);
      }
      at = q.empty() ? queues_.erase(at) : std::next(at);
    }
    TROUPE_INVARIANT(!queues_.empty() || (bytes_ == 0 && frames_ == 0),
                     "an empty queue counts neither frames nor bytes");
    if (queues_.empty()) bytes_to_.clear();
  }

  bool empty() const { return queues_.empty(); }
  std::uint64_t bytes_to(address to) const {
    const auto at = bytes_to_.find(to);
    return at == bytes_to_.end() ? 0 : at->second;
  }

 private:
  struct entry {
    frame what;
    std::uint32_t tag = 0;
    time_ns since = 0;
  };
  std::shared_ptr<runtime::transport> net_;
  std::map<std::pair<address, std::uint32_t>, std::deque<entry>> queues_;
  std::map<address, std::uint64_t> bytes_to_;
  std::uint64_t bytes_ = 0;
  std::size_t frames_ = 0;
};

}  // namespace troupe::actors
