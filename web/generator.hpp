#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpu/inference/completion.hpp"
#include "gpu/inference/top_tokens.hpp"
#include "messages/reason.hpp"

namespace troupe::web {

/// One sequence to generate.
struct sequence_request {
  std::vector<std::uint32_t> prompt;  // at least one token
  gpu::completion_limits limits;
  gpu::sampling how;
  std::uint32_t top = 0;      // of so many most probable tokens, too, the log probabilities
  double ttft_s = 0;          // goal for the first token; 0: the generator's
  std::int32_t priority = 0;  // larger first, where there is an order
};

/// Where a sequence was computed.
struct sequence_place {
  bool bubbles = false;      // its prompt, in the bubbles of a training; else by its decoder
  std::uint32_t guests = 0;  // devices that did it in bubbles
  std::uint32_t yields = 0;  // suspensions for the training
  std::string declined;      // why not in bubbles, if it was asked for
  std::string decoder;       // the node
  std::uint32_t attempts = 1;
  // Of a prompt in bubbles: when it was to be ready, when it was computed, both after the request
  // for it, and how long its cache took to the decoder.
  double promised_s = 0, prefill_s = 0, transfer_s = 0;
  bool operator==(const sequence_place&) const = default;
};

/// What happened to a sequence.
struct sequence_step {
  std::string text;  // certain now, see gpu::completion
  std::uint32_t token = 0;
  double log_probability = 0;
  std::vector<gpu::top_token> top;
  gpu::completion::finish finished = gpu::completion::finish::none;
  const reason* failed = nullptr;         // it cannot go on: the end, without a token
  std::optional<sequence_place> place{};  // with the first token and the last, where it is known
};
/// Called on the generator's thread, for each token in order, until the end.
using sequence_listener = std::function<void(const sequence_step&)>;

struct generator_state {
  std::uint32_t pages_used = 0, pages_free = 0, running = 0, waiting = 0;
  std::uint32_t longest = 0;  // prompt and completion, at most; 0: it cannot generate at present
};

/// What completes prompts of one model, for many callers at a time. Thread-safe. Its destruction
/// ends all sequences; their listeners are not called again.
class generator {
 public:
  virtual ~generator() = default;

  struct submission {
    sequence_request request;
    sequence_listener listener;
  };
  /// Begins all of them, or none: `insufficient` if there would be too many sequences,
  /// `unavailable` if it cannot generate at present, `invalid` if one can never run: for its
  /// positions, its pages or unknown tokens. Returns their numbers.
  virtual expected<std::vector<std::uint64_t>> submit(std::vector<submission> all) = 0;
  /// Ends sequences without a further step; those that have ended are ignored. Listeners may still
  /// be called for a moment.
  virtual void cancel(const std::vector<std::uint64_t>& sequences) = 0;

  virtual generator_state state() const = 0;
};

}  // namespace troupe::web
