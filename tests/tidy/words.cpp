#include <algorithm>
#include <array>
#include <regex>
#include <string_view>

#include "tidy/rules.hpp"

namespace troupe::tidy {

namespace {

struct replaced {
  std::string_view word, by;
};

// Parts of identifiers, between underscores, that have a term in docs/glossary.md.
constexpr std::array<replaced, 6> parts{{{"most", "max"},
                                         {"least", "min"},
                                         {"told", "the message's name, or notified"},
                                         {"heard", "received or acknowledged"},
                                         {"hear", "receive"},
                                         {"news", "update"}}};
// Identifiers in which such a part is ordinary English.
constexpr std::array<std::string_view, 3> exempt{"at_most", "at_least", "most_probable"};

constexpr std::array<std::string_view, 4> openings{"What ", "Of ", "So many", "So much"};

void check_identifier(const source& s, std::size_t line, const std::string& name,
                      std::vector<finding>& out) {
  if (std::ranges::find(exempt, name) != exempt.end()) return;
  const auto padded = "_" + name + "_";
  for (const auto& p : parts)
    if (padded.find("_" + std::string{p.word} + "_") != std::string::npos)
      out.push_back(
          {s.path, line,
           "'" + name + "' has '" + std::string{p.word} + "'; write " + std::string{p.by}});
}

/// The text of the comment that begins in line i, or nothing: a line that continues the comment of
/// the line before it begins none.
std::string opening_of(const source& s, std::size_t i) {
  static const std::regex own{R"(\s*//[/!]?<?\s*(.*))"}, trailing{R"(.*[;,{})(>\w]\s+//\s*(.*))"};
  std::smatch m;
  if (std::regex_match(s.lines[i], m, own))
    return i > 0 && std::regex_match(s.lines[i - 1], own) ? "" : m[1].str();
  // Two slashes within a literal begin no comment: the rest of its line has a quote.
  return std::regex_match(s.lines[i], m, trailing) && s.lines[i].find('"') == std::string::npos
             ? m[1].str()
             : "";
}

}  // namespace

std::vector<finding> check_words(const source& s) {
  static const std::regex identifier{R"([A-Za-z_]\w*)"}, error_maker{R"((^|[^\w.>:])(no|wrong)\()"};
  std::vector<finding> out;
  for (std::size_t i = 0; i < s.code.size(); ++i) {
    const auto& code = s.code[i];
    if (code.starts_with("#include")) continue;
    for (std::sregex_iterator at{code.begin(), code.end(), identifier}, end; at != end; ++at)
      check_identifier(s, i + 1, at->str(), out);
    if (std::regex_search(code, error_maker))
      out.push_back(
          {s.path, i + 1, "'no(' or 'wrong(' makes an error; name it failure or invalid"});
    const auto text = opening_of(s, i);
    for (const auto& o : openings)
      if (text.starts_with(o))
        out.push_back({s.path, i + 1,
                       "a comment begins with '" + std::string{o} + "'; begin with its subject"});
  }
  return out;
}

}  // namespace troupe::tidy
