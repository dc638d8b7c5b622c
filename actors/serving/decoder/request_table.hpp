#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "actors/serving/decoder/recent_map.hpp"
#include "actors/serving/decoder/unacknowledged_tokens.hpp"
#include "gpu/inference/inference_device.hpp"
#include "messages/base/time.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/generation.hpp"

namespace troupe::actors {

/// A request of a front, whatever the attempt.
struct request_key {
  address front = 0;
  std::uint64_t incarnation = 0, number = 0;

  auto operator<=>(const request_key&) const = default;
};
inline request_key key_of(const request_name& n) {
  return {n.front, n.incarnation, n.number};
}

/// The requests of a decoder, those that have ended lately, and the fronts that they are of: which
/// of a front's messages count, and which requests have updates for it. A class apart because
/// these rules are about names and acknowledgements alone, without device, pages or prefills.
/// Pure: times are arguments.
///
/// Only a front's newest process and a request's newest attempt count. A front is silent from the
/// first statement that it must answer until its next message.
class request_table {
 public:
  struct request {
    generate about;
    payload body;  // the tokens of the prompt, then the known ones of the completion
    gpu::sequence_id sequence = 0;
    double arrived_s = 0;
    unacknowledged_tokens output;
    double admitted_s = 0;
    prefill_place where{};
    std::uint64_t prefill = 0;  // number of its attempt in bubbles; 0: none
    std::uint32_t scored = 0;   // tokens of the prompt
  };
  using request_map = std::map<request_key, request>;
  /// Ends a request that is not needed any more, and calls erase().
  using dropper = std::function<void(const request_key&)>;

  /// False: the message is from an older process of that front. A newer one has none of the
  /// requests of the older one: they are dropped.
  bool is_current(address from, const request_name& n, const dropper& drop);
  /// A statement that the front must answer has been sent.
  void expect_answer(address front, double now_s);
  /// Drops the requests of fronts that have been silent for that long.
  void drop_silent(double now_s, double limit_s, const dropper& drop);

  request& add(request r);
  request_map& all() { return requests_; }
  /// This attempt; null: it is not here.
  request* find(const request_name& n);
  /// The request whose sequence is in the batch; null: none.
  request* find(gpu::sequence_id s);
  /// Its sequence is no longer in the batch.
  void leave_batch(const request& r) { by_sequence_.erase(r.sequence); }
  /// It has ended: only how is remembered.
  void erase(const request_key& k);
  void clear() {
    requests_.clear();
    changed_.clear();
  }

  /// It has tokens, or an end, that were not sent yet.
  void mark_changed(const request& r) { changed_.insert(key_of(r.about.name)); }
  std::set<request_key> take_changed() { return std::exchange(changed_, {}); }

  /// A late or repeated message cannot begin an attempt again that has ended: it gets that ending.
  void remember(const generated& ending) { endings_.add(key_of(ending.name), ending); }
  /// The ending of this attempt, or of a later one; null: it has not ended.
  const generated* ending_of(const request_name& n) const;

 private:
  struct front_contact {
    std::uint64_t incarnation = 0;
    double silent_since_s = never;
  };
  void drop_front(address front, std::uint64_t incarnation, const dropper& drop);

  request_map requests_;
  std::map<gpu::sequence_id, request_key> by_sequence_;
  std::set<request_key> changed_;
  std::map<address, front_contact> fronts_;
  recent_map<request_key, generated, 8192> endings_;  // of their newest attempts
};

}  // namespace troupe::actors
