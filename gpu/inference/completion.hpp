#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/inference/stop_texts.hpp"
#include "messages/domain/completion.hpp"
#include "text/base/utf8_stream.hpp"
#include "text/tokens/tokenizer.hpp"

namespace troupe::gpu {

/// A completion as it grows by tokens: its text, and whether it has ended.
class completion {
 public:
  enum class finish : std::uint8_t { none, stop, length };

  /// Ends with the request's last tokens, which are not part of the text, and before each of these
  /// texts (not empty) behind that of its first min_tokens. words: null: tokens without text. It
  /// must outlive this.
  completion(const completion_request& asked, stop_texts stops, const tokenizer* words);

  /// Adds a token, if it has not ended; returns the text that is certain now: valid UTF-8 that no
  /// stop text can take back. All returned pieces are text() in the end.
  std::string add(const weighed_token& t);

  finish finished() const { return finished_; }
  const std::string& text() const { return text_; }
  const std::vector<std::uint32_t>& tokens() const { return tokens_; }
  const std::vector<double>& log_probabilities() const { return log_probabilities_; }

 private:
  std::string certain(std::string fresh, bool ends);

  std::uint32_t max_tokens_, min_tokens_;
  std::vector<std::uint32_t> last_tokens_;
  stop_search stops_;
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
