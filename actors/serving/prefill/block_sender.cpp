#include "actors/serving/prefill/block_sender.hpp"

#include <algorithm>
#include <utility>

#include "actors/protocol/timing.hpp"
#include "actors/serving/decoder/block_receiver.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"

namespace troupe::actors {

namespace {

constexpr double max_patience = 16;
constexpr double share_of_a_sample = 0.25;

}  // namespace

// All blocks to a receiver carry the count of the first one: the receiver refuses any other.
void block_sender::add(prefill_block header, payload body, double now_s) {
  if (done_) return;
  TROUPE_INVARIANT(header.index == blocks_.size(),
                   "the blocks of a prompt are sent in their order");
  header.hash = block_hash(body);
  if (!blocks_.empty()) header.blocks = blocks_.front().header.blocks;
  blocks_.push_back({std::move(header), std::move(body), now_s});
}

// Flow control of a bulk transfer, as over any lossy path. A window limits the bytes under way. The
// round trip is an exponential average of samples from blocks that were sent once (Karn's rule). A
// block counts as lost after three round trips; each time that blocks are sent again the patience
// is doubled, until a round trip is measured anew.
double block_sender::resend_after_s() const {
  return patience_ * std::max(shortest_resend_s, round_trips * round_trip_s_);
}

// Times in a block's progress are durations before its sending: a block that is sent later, or
// again, has them grow by its time here.
block_sender::outgoing block_sender::send(block& b, double now_s) {
  b.sent_s = now_s;
  ++b.times;
  outgoing o{b.header, b.body};
  o.header.progress.ended_ago_s += now_s - b.added_s;
  o.header.progress.begun_ago_s += now_s - b.added_s;
  return o;
}

std::vector<block_sender::outgoing> block_sender::take_due(double now_s) {
  std::vector<outgoing> result;
  if (done_) return result;
  const double limit_s = resend_after_s();
  for (const auto i : under_way_) {
    if (blocks_[i].sent_s + limit_s > now_s + timer_rounding_s) continue;
    result.push_back(send(blocks_[i], now_s));
    ++resent_;
  }
  // They may only be slow: a path with long queues must not be filled with copies.
  if (!result.empty()) patience_ = std::min(2 * patience_, max_patience);
  for (; next_ < blocks_.size(); ++next_) {
    auto& b = blocks_[next_];
    if (!under_way_.empty() && under_way_bytes_ + b.header.bytes > window_) break;
    under_way_.insert(static_cast<std::uint32_t>(next_));
    under_way_bytes_ += b.header.bytes;
    result.push_back(send(b, now_s));
  }
  return result;
}

void block_sender::receive(block& b, double now_s) {
  // Which copy of a repeated block has arrived is unknown.
  if (b.times == 1) {
    const double took_s = now_s - b.sent_s;
    round_trip_s_ =
        round_trip_s_ == 0 ? took_s : round_trip_s_ + share_of_a_sample * (took_s - round_trip_s_);
    patience_ = 1;
  }
  b.received = true;
  b.body = {};
  under_way_bytes_ -= b.header.bytes;
  under_way_.erase(b.header.index);
  ++received_;
}

// Only blocks under way can be received: a state that claims others is of a faulty receiver, and
// must not end the transfer early. `whole` ends it in any case, since the receiver needs no more.
void block_sender::on_received(const blocks_received& r, double now_s) {
  if (done_) return;
  const auto sent_below = static_cast<std::uint32_t>(next_);
  while (!under_way_.empty() && *under_way_.begin() < std::min(r.all_below, sent_below))
    receive(blocks_[*under_way_.begin()], now_s);
  for (const auto i : r.others)
    if (under_way_.contains(i)) receive(blocks_[i], now_s);
  const bool all = !blocks_.empty() && received_ == blocks_.front().header.blocks;
  if (!all && !r.whole) return;
  done_ = true;
  under_way_.clear();
  blocks_.clear();
}

double block_sender::next_due_s() const {
  double due_s = never;
  for (const auto i : under_way_) due_s = std::min(due_s, blocks_[i].sent_s + resend_after_s());
  return due_s;
}

}  // namespace troupe::actors
