#pragma once

#include <cctype>
#include <initializer_list>
#include <string_view>

namespace troupe::test {

/// Does an error's text name all of these facts (numbers, names, keys), each as a word of its own?
/// Its wording may change.
inline bool has_facts(std::string_view text, std::initializer_list<std::string_view> facts) {
  const auto in_word = [&](std::size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };
  for (const auto fact : facts) {
    auto at = text.find(fact);
    while (at != text.npos && ((at > 0 && in_word(at - 1)) || in_word(at + fact.size())))
      at = text.find(fact, at + 1);
    if (at == text.npos) return false;
  }
  return true;
}

}  // namespace troupe::test
