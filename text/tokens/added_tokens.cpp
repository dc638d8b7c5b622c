#include "text/tokens/added_tokens.hpp"

#include <algorithm>

#include "text/base/characters.hpp"

namespace troupe::gpu {

namespace {

/// Node and byte in one key: one hash table holds the whole tree.
std::uint64_t step_of(std::uint32_t node, char next) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(next);
}

bool stands_alone(std::string_view text, text_range name) {
  return !ends_with_word(text.substr(0, name.begin)) && !begins_with_word(text.substr(name.end));
}

}  // namespace

/// The tree makes the search independent of the number of tokens, which may be thousands.
void token_finder::add(std::string_view name, const added_token& token) {
  if (name.empty()) return;
  std::uint32_t node = 0;
  for (const char c : name) {
    const auto [next, fresh] = steps_.try_emplace(step_of(node, c), ends_.size());
    if (fresh) ends_.push_back(nullptr);
    node = next->second;
  }
  if (!ends_[node]) ends_[node] = &token;
  begin_.set(static_cast<unsigned char>(name[0]));
  has_special_ = has_special_ || token.special;
}

/// The walk goes on past the end of a name, because a longer name may begin with it.
token_finder::found token_finder::longest_at(std::string_view text, std::size_t at) const {
  found longest;
  if (!begin_.test(static_cast<unsigned char>(text[at]))) return longest;
  std::uint32_t node = 0;
  for (auto i = at; i < text.size();) {
    const auto next = steps_.find(step_of(node, text[i]));
    if (next == steps_.end()) break;
    node = next->second;
    ++i;
    if (ends_[node]) longest = {i, ends_[node]};
  }
  return longest;
}

void token_finder::split(std::string_view text, std::span<const text_range> literal,
                         const std::function<void(const part&)>& use) const {
  std::size_t plain = 0;  // where the text begins that belongs to no token yet
  const auto use_plain = [&](std::size_t end) {
    if (end > plain) use({text.substr(plain, end - plain), plain, nullptr});
  };
  for (std::size_t at = 0; at < text.size() && !empty();) {
    const auto [end, token] = longest_at(text, at);
    if (!token) {
      ++at;
      continue;
    }
    text_range name{at, end};
    at = end;
    if (token->single_word && !stands_alone(text, name)) continue;
    if (const auto* range = overlapped(literal, name); range && token->special) {
      // The text after the literal part may be a token of its own.
      at = std::max(name.begin + 1, std::min(name.end, range->end));
      continue;
    }
    if (token->strips_left)
      name.begin = std::max(name.begin - trailing_space(text.substr(0, name.begin)),
                            std::min(plain, name.begin));
    if (token->strips_right) name.end += leading_space(text.substr(name.end));
    use_plain(name.begin);
    use({text.substr(name.begin, name.end - name.begin), name.begin, token});
    plain = name.end;
  }
  use_plain(text.size());
}

}  // namespace troupe::gpu
