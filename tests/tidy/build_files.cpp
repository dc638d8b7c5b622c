#include <algorithm>
#include <regex>
#include <sstream>

#include "tidy/rules.hpp"

namespace troupe::tidy {

namespace {

/// The words of a line of CMake, without its comment.
std::vector<std::string> words_of(std::string line) {
  line = line.substr(0, line.find('#'));
  for (char& c : line)
    if (c == '"' || c == '(' || c == ')' || c == ';') c = ' ';
  std::istringstream in{line};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

// A target that the default build leaves out (fuzzers, mutants, planted bugs) keeps the name of a
// moved source until somebody configures it. Only sources with a folder are checked: a bare name is
// one of the file's own target, which every configuration reads.
std::vector<finding> check_build_file(const source& s, const checkout& c) {
  static const std::regex named_source{R"([\w./-]*/[\w.-]+\.(cpp|cu))"};
  const auto folder = s.path.substr(0, s.path.rfind('/') + 1);
  // A list may be relative to the root, to its own folder, or to the module that it takes it from.
  std::vector<std::string> origins{"", folder};
  for (const auto* m : {"messages", "planners", "formats", "runtime", "text", "gpu", "actors",
                        "studies", "web", "cli"})
    origins.push_back(std::string{m} + "/");
  std::vector<finding> out;
  for (std::size_t i = 0; i < s.lines.size(); ++i)
    for (const auto& word : words_of(s.lines[i]))
      if (std::regex_match(word, named_source) &&
          std::none_of(origins.begin(), origins.end(), [&](const std::string& origin) {
            return c.exists(normal_path(origin + word));
          }))
        out.push_back({s.path, i + 1, "names " + word + ", which is not there"});
  return out;
}

}  // namespace troupe::tidy
