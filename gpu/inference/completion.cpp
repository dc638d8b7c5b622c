#include "gpu/inference/completion.hpp"

#include <algorithm>
#include <utility>

namespace troupe::gpu {

completion::completion(const completion_request& asked, std::vector<std::string> stops,
                       const tokenizer* words)
    : max_tokens_{asked.max_tokens},
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
// nothing can follow, so what was held is certain.
std::string completion::certain(std::string fresh, bool ends) {
  auto all = std::exchange(held_, {}) + fresh;
  auto cut = std::string::npos;
  for (const auto& stop : stops_) cut = std::min(cut, all.find(stop));
  if (cut != std::string::npos) {
    finished_ = finish::stop;
    return all.substr(0, cut);
  }
  if (ends) return all;
  std::size_t hold = 0;
  for (const auto& stop : stops_)
    for (auto n = std::min(stop.size() - 1, all.size()); n > hold; --n)
      if (all.ends_with(std::string_view{stop}.substr(0, n))) hold = n;
  held_ = all.substr(all.size() - hold);
  all.resize(all.size() - hold);
  return all;
}

std::string_view name_of(completion::finish f) {
  if (f == completion::finish::none) return {};
  return f == completion::finish::stop ? "stop" : "length";
}

}  // namespace troupe::gpu
