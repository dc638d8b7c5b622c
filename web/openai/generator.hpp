#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpu/inference/adapter.hpp"
#include "gpu/inference/completion.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/completion.hpp"
#include "messages/wire/generation.hpp"

namespace troupe::web {

/// Where a sequence was computed.
struct sequence_place {
  prefill_place prefill;
  std::string decoder;  // the node
  std::uint32_t attempts = 1;
  bool operator==(const sequence_place&) const = default;
};

/// A token of the answer to a sequence, or its failure.
struct sequence_step {
  generated_token token;
  bool of_prompt = false;  // scored, not generated
  std::string text;        // certain now, see gpu::completion
  gpu::completion::finish finished = gpu::completion::finish::none;
  const reason* failed = nullptr;         // it cannot go on: the end, without a token
  std::optional<sequence_place> place{};  // with the first token and the last, where it is known
  std::uint32_t cached = 0;  // with the first token: of the prompt, those that were not computed
};
/// Called on the generator's thread, for each token in order, until the end.
using sequence_listener = std::function<void(const sequence_step&)>;

struct generator_state {
  std::uint32_t pages_used = 0, pages_free = 0, running = 0, waiting = 0;
  std::uint32_t longest = 0;       // prompt and completion, at most; 0: it cannot generate now
  std::uint32_t pages_cached = 0;  // of the free ones: those with the beginning of a prompt
  // Since the beginning: sequences that were computed again for lack of pages, and positions of
  // prompts that were computed, or that other prompts had computed.
  std::uint64_t set_back = 0, computed_prompt = 0, cached_prompt = 0;
};

/// Completes prompts of one model, for many callers at a time. Thread-safe. Its destruction
/// ends all sequences; their listeners are not called again.
class generator {
 public:
  virtual ~generator() = default;

  struct submission {
    completion_request what;
    std::vector<std::uint32_t> prompt;  // what.prompt_tokens
    gpu::stop_texts stops;              // texts that end the completion
    sequence_listener listener;
    gpu::adapter_ref adapter{};  // that it is computed with
    std::string adapter_name{};  // of it, as clients name it; a cluster's decoders have its values
  };
  /// Begins all of them, or none: `insufficient` if there would be too many sequences,
  /// `unavailable` if it cannot generate now, `invalid` if one can never run: for its
  /// positions, its pages or unknown tokens. Returns their numbers.
  virtual expected<std::vector<std::uint64_t>> submit(std::vector<submission> all) = 0;
  /// Ends sequences without a further step; those that have ended are ignored. Listeners may still
  /// be called for a moment.
  virtual void cancel(const std::vector<std::uint64_t>& sequences) = 0;

  virtual generator_state state() const = 0;
};

/// The tokens of a sequence's answer as steps, in order: their text, and where it ends.
class sequence_steps {
 public:
  /// words: null: tokens without text. It must outlive this.
  sequence_steps(const generator::submission& s, const gpu::tokenizer* words)
      : text_{s.what, s.stops, words}, left_{s.what.answer_tokens()} {}

  /// Scored tokens of the prompt come first; they end an answer that has no others.
  sequence_step next(const generated_token& t, bool of_prompt) {
    using enum gpu::completion::finish;
    --left_;
    if (of_prompt) return {t, true, {}, left_ == 0 ? length : none};
    auto text = text_.add(t.chosen);
    return {t, false, std::move(text), text_.finished()};
  }

 private:
  gpu::completion text_;
  std::uint64_t left_;  // tokens
};

}  // namespace troupe::web
