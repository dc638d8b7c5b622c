#include "gpu/inference/completion.hpp"

#include <algorithm>
#include <utility>

namespace troupe::gpu {

completion::completion(const completion_request& asked, stop_texts stops, const tokenizer* words)
    : max_tokens_{asked.max_tokens},
      min_tokens_{asked.min_tokens.value_or(0)},
      last_tokens_{asked.last_tokens},
      stops_{std::move(stops)},
      words_{words} {}

// A token ends the completion by itself (one of the last tokens, which has no text), by the number
// of tokens, or by a stop text, which certain() finds in the text. UTF-8 comes first: a character
// may take several tokens, and stop texts are compared with whole characters.
std::string completion::add(const weighed_token& t) {
  if (finished_ != finish::none) return {};
  const bool last = std::ranges::count(last_tokens_, t.token) > 0;
  std::string fresh;
  if (words_ && !last) fresh = utf8_.add(words_->text_of(t.token, false));
  tokens_.push_back(t.token);
  log_probabilities_.push_back(t.log_probability);
  if (last)
    finished_ = finish::stop;
  else if (tokens_.size() >= max_tokens_)
    finished_ = finish::length;
  const bool ends = finished_ != finish::none;
  if (ends) fresh += utf8_.end();
  fresh = certain(std::move(fresh), ends);
  text_ += fresh;
  return fresh;
}

// A stop text may be spread over tokens, and must not be part of the answer: the longest end of the
// text that begins one is held back until the next token decides. At the end of the completion
// nothing can follow, so what was held is certain. The text of the first tokens, of which there
// must be some number, is not searched.
std::string completion::certain(std::string fresh, bool ends) {
  if (tokens_.size() <= min_tokens_) return fresh;
  const auto begin = stops_.size() - held_.size();
  const auto stop = stops_.add(fresh);
  auto all = std::exchange(held_, {}) + fresh;
  if (stop) {
    finished_ = finish::stop;
    return all.substr(0, *stop - begin);
  }
  if (ends) return all;
  const auto certain = all.size() - stops_.open();
  held_ = all.substr(certain);
  all.resize(certain);
  return all;
}

std::string_view name_of(completion::finish f) {
  if (f == completion::finish::none) return {};
  return f == completion::finish::stop ? "stop" : "length";
}

}  // namespace troupe::gpu
