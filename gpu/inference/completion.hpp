#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/inference/sampling.hpp"
#include "gpu/text/tokenizer.hpp"
#include "gpu/text/utf8_stream.hpp"

namespace troupe::gpu {

/// When a completion ends.
struct completion_limits {
  std::uint32_t max_tokens = 16;             // at least 1
  std::vector<std::uint32_t> last_tokens{};  // each ends it, and is not part of its text
  std::vector<std::string> stops{};          // so does each of these texts; not empty
};

/// A completion as it grows by tokens: its text, and whether it has ended.
class completion {
 public:
  enum class finish : std::uint8_t { none, stop, length };

  /// words: null: tokens without text. It must outlive this.
  completion(completion_limits limits, const tokenizer* words);

  /// Adds a token, if it has not ended; returns the text that is certain now: valid UTF-8 that no
  /// stop text can take back. All returned pieces are text() in the end.
  std::string add(const sampled_token& t);

  finish finished() const { return finished_; }
  const std::string& text() const { return text_; }
  const std::vector<std::uint32_t>& tokens() const { return tokens_; }
  const std::vector<double>& log_probabilities() const { return log_probabilities_; }

 private:
  std::string certain(std::string fresh, bool ends);

  completion_limits limits_;
  const tokenizer* words_;
  std::vector<std::uint32_t> tokens_;
  std::vector<double> log_probabilities_;
  utf8_stream utf8_;
  std::string held_;  // may become a stop text
  std::string text_;
  finish finished_ = finish::none;
};

/// "stop" or "length"; nothing if it has not ended.
std::string_view name_of(completion::finish f);

}  // namespace troupe::gpu
