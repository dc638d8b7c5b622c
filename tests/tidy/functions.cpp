#include <algorithm>

#include "tidy/rules.hpp"

namespace troupe::tidy {

namespace {

constexpr std::size_t max_lines = 70;

std::size_t indent_of(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

/// Whether a line of formatted code opens a block whose content is no function's.
bool opens_scope(const std::string& code) {
  const auto text = code.substr(indent_of(code));
  for (const auto* word :
       {"namespace", "class ", "struct ", "enum ", "union ", "extern ", "inline namespace"})
    if (text.starts_with(word)) return true;
  return false;
}

}  // namespace

// Formatted code closes a function's block with a brace at the column of its first line, and gives
// what is in it a larger one. A table of values, which ends with "};", is no function.
std::vector<finding> check_functions(const source& s) {
  std::vector<finding> out;
  if (s.module() == "tests") return out;  // a case may be one long table
  for (std::size_t i = 0; i < s.code.size(); ++i) {
    const auto& line = s.code[i];
    const auto indent = indent_of(line);
    if (indent > 4 || line.find('(') == std::string::npos || opens_scope(line)) continue;
    if (indent < line.size() && (line[indent] == '#' || line[indent] == ':' || line[indent] == '}'))
      continue;
    auto end = i;
    while (end < s.code.size() &&
           (s.code[end].empty() || indent_of(s.code[end]) > indent || end == i))
      if (++end - i > 2000) break;
    if (end >= s.code.size() || s.code[end] != std::string(indent, ' ') + "}") continue;
    if (const auto n = end - i + 1; n > max_lines) {
      out.push_back(
          {s.path, i + 1, "begins a function of " + std::to_string(n) + " lines; 70 are allowed"});
      i = end;
    }
  }
  return out;
}

}  // namespace troupe::tidy
