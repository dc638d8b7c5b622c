#include "tidy/lists.hpp"

#include <algorithm>
#include <array>
#include <regex>

#include "tidy/floors.hpp"

namespace troupe::tidy {

namespace {

using reader = std::function<source(const std::string&)>;

std::string quoted(const std::string& name) {
  return "`" + name + "`";
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& l : lines) text += l + "\n";
  return text;
}

constexpr const char* architecture = "docs/architecture.md";

void check_floor_rows(const source& page, std::vector<finding>& out) {
  for (const auto& m : all_floors()) {
    const auto row = floors_row(m.module);
    const bool there = std::ranges::any_of(
        page.lines, [&](const std::string& line) { return line.starts_with(row); });
    if (!there)
      out.push_back(
          {page.path, 1,
           "has not the sub-modules of tests/tidy/floors.cpp; expected a row \"" + row + "\""});
  }
}

/// How many alternatives `using any_journal_entry = std::variant<...>` has.
std::size_t journal_kinds(const source& journal) {
  const auto text = joined(journal.code);
  static const std::regex entry{R"(using\s+any_journal_entry\s*=\s*std::variant<([^>]*)>)"};
  std::smatch found;
  if (!std::regex_search(text, found, entry)) return 0;
  const std::string all = found[1];
  return static_cast<std::size_t>(std::ranges::count(all, ',')) + 1;
}

void check_journal(const source& page, const source& journal, std::vector<finding>& out) {
  constexpr std::array words{"ten",     "eleven",    "twelve",   "thirteen", "fourteen", "fifteen",
                             "sixteen", "seventeen", "eighteen", "nineteen", "twenty"};
  const auto kinds = journal_kinds(journal);
  const auto at = kinds - 10;
  const std::string sentence = kinds >= 10 && at < words.size()
                                   ? "defines " + std::string{words[at]} + " kinds of entry"
                                   : "defines " + std::to_string(kinds) + " kinds of entry";
  if (joined(page.lines).find(sentence) == std::string::npos)
    out.push_back({page.path, 1,
                   "has another number of journal entries than messages/wire/journal.hpp; expected "
                   "\"" +
                       sentence + "\""});
}

void check_verbs(const source& readme, const source& list, std::vector<finding>& out) {
  const auto text = joined(readme.lines);
  for (const auto& verb : read_verbs(list))
    if (text.find(quoted(verb)) == std::string::npos)
      out.push_back({readme.path, 1, "lacks the verb " + quoted(verb) + " of cli/verbs/verbs.def"});
}

}  // namespace

std::string floors_row(const std::string& module) {
  std::string row = "| " + quoted(module) + " | ";
  for (const auto& m : all_floors()) {
    if (m.module != module) continue;
    for (std::size_t i = 0; i < m.floors.size(); ++i) {
      if (i > 0) row += "; ";
      for (std::size_t k = 0; k < m.floors[i].size(); ++k)
        row += (k == 0 ? "" : ", ") + quoted(m.floors[i][k].empty() ? "." : m.floors[i][k]);
    }
  }
  return row;
}

std::vector<finding> check_lists(const reader& read) {
  std::vector<finding> out;
  const auto page = read(architecture);
  check_floor_rows(page, out);
  check_journal(page, read("messages/wire/journal.hpp"), out);
  check_verbs(read("cli/README.md"), read("cli/verbs/verbs.def"), out);
  return out;
}

}  // namespace troupe::tidy
