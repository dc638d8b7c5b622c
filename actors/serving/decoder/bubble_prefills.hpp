#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "actors/protocol/messenger.hpp"
#include "actors/serving/decoder/batch_executor.hpp"
#include "actors/serving/decoder/prefill_attempt.hpp"
#include "messages/domain/address.hpp"
#include "runtime/host/log_limiter.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// A decoder's attempts to have prompts prefilled in bubbles, by their numbers: its conversation
/// with the prefill controller and the guests, one prefill_attempt for each prompt, and the
/// cancellations of those that are over. A class apart because it knows neither fronts nor
/// completions: for a prompt whose pages are reserved it results in the cache, or in the reason why
/// there is none.
///
/// An attempt that has ended is cancelled at the controller, which repeats nothing by itself, until
/// it has confirmed it; guests learn it when they send a block.
class bubble_prefills {
 public:
  struct prompt {
    gpu::sequence_id sequence = 0;
    std::uint32_t tokens = 0;
    payload body;                      // them, 32-bit; empty in a simulation
    double arrived_s = 0, ttft_s = 0;  // the first token is due ttft_s after the arrival
    std::int32_t priority = 0;
  };
  /// How an attempt has ended: the whole cache is in `where` and `last_hidden`, or it has failed.
  struct outcome {
    gpu::sequence_id sequence = 0;
    prefill_place where;
    payload last_hidden;
    std::optional<reason> failed;
  };
  /// The effect of a message. `known`: it was about an attempt that is not over.
  struct change {
    bool known = false;
    std::optional<gpu::batch_round::cache_part> part{};  // goes into the cache, before the outcome
    std::optional<outcome> ended{};
  };

  /// `wake_at`: asks for a call of check() or repeat_cancellations() at that time, or earlier.
  void start(messenger m, shared_cluster c, std::string model, lease_id lease,
             std::function<void(double at_s)> wake_at);

  /// Returns the attempt's number, from 1. It asks the controller at its first check().
  std::uint64_t begin(prompt p, const decoder_model& m);
  /// Asks (again) if it is time. Numbers of no attempt are ignored, as in the next two.
  std::optional<outcome> check(std::uint64_t number);
  double next_due_s(std::uint64_t number) const;
  /// The prefill is not needed any more.
  void end(std::uint64_t number);
  /// Sends those that are due; returns when the next one is.
  double repeat_cancellations();

  change on_reply(address from, const prefill_reply& r);
  change on_progress(address from, const prefill_progress& p);
  /// Answers the block's sender.
  change on_block(address from, const prefill_block& b, const payload& body);

 private:
  struct entry {
    prompt about;
    bool has_data = true;  // blocks have bodies
    prefill_attempt attempt;
  };
  /// A prefill that the controller may forget; repeated until it confirms that.
  struct cancellation {
    double due_s = 0;
    std::uint32_t left = 0;  // repetitions
  };
  using entry_map = std::map<std::uint64_t, entry>;

  void ask(entry& e, double within_s);
  void log_refused(address from, const reason& why);
  double now() const { return messenger_.now_s(); }
  address gateway() const { return gateway_of(*cluster_, messenger_.self()); }

  messenger messenger_;
  shared_cluster cluster_;
  std::string model_;  // the served name
  lease_id lease_ = 0;
  std::function<void(double)> wake_at_;
  entry_map attempts_;  // those that are not over
  std::map<std::uint64_t, cancellation> cancelled_;
  std::uint64_t numbers_ = 0;
  runtime::log_limiter refused_;  // blocks
};

}  // namespace troupe::actors
