#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::mutation_test {

/// One operator that can be another one.
struct mutant {
  int id = 0;
  std::size_t line = 0;  // from 1
  std::string text;      // that line, as in "return a {< -> <=} b;"
};

struct instrumented {
  std::string source;  // with the lines of the original
  std::vector<mutant> mutants;
};

/// Numbers the mutants from `first_id` on; none is on a line of `without`. The source is formatted
/// by clang-format, which sets binary operators, and nothing else, between spaces.
instrumented instrument(std::string_view source, int first_id,
                        const std::set<std::size_t>& without);

}  // namespace troupe::mutation_test
