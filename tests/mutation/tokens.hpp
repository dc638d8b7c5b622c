#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace troupe::mutation_test {

/// A word, number, literal or operator of C++; comments and preprocessor lines are none.
struct token {
  enum class kind { word, number, text, sign };
  kind what;
  std::size_t begin, end;  // in the source
  std::string_view text;
  std::size_t partner;  // of a bracket: the other one's index; else its own
};

std::vector<token> tokens_of(std::string_view source);

}  // namespace troupe::mutation_test
