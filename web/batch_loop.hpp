#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpu/inference/completion.hpp"
#include "gpu/inference/inference_device.hpp"
#include "web/top_tokens.hpp"

namespace troupe::web {

struct batch_limits {
  std::uint32_t running = 64;     // sequences at a time; beyond them, sequences wait
  std::uint32_t sequences = 256;  // running and waiting; beyond them, submit() refuses
  std::uint32_t prefill = 256;    // positions of prompts between two decodes; multiple of a tile
};

/// One sequence to generate.
struct sequence_request {
  std::vector<std::uint32_t> prompt;  // at least one token
  gpu::completion_limits limits;
  gpu::sampling how;
  std::uint32_t top = 0;  // of so many most probable tokens, too, the log probabilities
};

/// What happened to a sequence.
struct sequence_step {
  std::string text;  // certain now, see gpu::completion
  std::uint32_t token = 0;
  double log_probability = 0;
  std::vector<top_token> top;
  gpu::completion::finish finished = gpu::completion::finish::none;
  const reason* failed = nullptr;  // the device could not go on: the end, without a token
};
/// Called on the loop's thread, for each token in order, until the end.
using sequence_listener = std::function<void(const sequence_step&)>;

/// Pages of the cache, and sequences.
struct batch_state {
  std::uint32_t pages_used = 0, pages_free = 0, running = 0, waiting = 0;
};

/// Continuous batching on one device, which a thread of its own uses: all running sequences are
/// decoded together, and between two decodes the prompts of admitted ones are computed. A
/// sequence's pages, for its prompt and max_tokens, are taken when it is admitted, in the order of
/// arrival, and free after its end. Its tokens are those of gpu::generate(), bit for bit, whatever
/// its company. Thread-safe.
class batch_loop {
 public:
  /// words: null: tokens without text.
  batch_loop(std::unique_ptr<gpu::inference_device> device,
             std::shared_ptr<const gpu::tokenizer> words, const batch_limits& limits);
  /// Ends all sequences; their listeners are not called again.
  ~batch_loop();
  batch_loop(const batch_loop&) = delete;
  batch_loop& operator=(const batch_loop&) = delete;

  struct submission {
    sequence_request request;
    sequence_listener listener;
  };
  /// Queues all of them, or none: `insufficient` if there would be too many sequences. `invalid` if
  /// one can never run: for its positions, its pages or unknown tokens. Returns their numbers.
  expected<std::vector<std::uint64_t>> submit(std::vector<submission> all);
  /// Ends sequences without a further step; those that have ended are ignored. `listener` may still
  /// be called for a moment.
  void cancel(const std::vector<std::uint64_t>& sequences);

  batch_state state() const;

 private:
  class thread;
  std::unique_ptr<thread> thread_;
};

}  // namespace troupe::web
