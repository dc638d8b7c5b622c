#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tidy/source.hpp"

namespace troupe::tidy {

/// A breach of a house rule; printed as "path:line: sentence".
struct finding {
  std::string path;
  std::size_t line = 1;
  std::string sentence;

  std::string text() const { return path + ":" + std::to_string(line) + ": " + sentence; }
};

/// The facts about the checkout that a rule may use apart from the file that it reads.
struct checkout {
  std::function<bool(const std::string& path)> exists;
  std::vector<std::string> dev_commands;  // that ./dev knows
  std::vector<std::string> verbs;         // of the program
  std::vector<std::string> policies;      // by name
};

/// The modules that a module may include from, and the libraries that only some modules may.
std::vector<finding> check_includes(const source& s);
/// Clocks, sleeps and randomness in their places; no order from hashes or addresses.
std::vector<finding> check_determinism(const source& s);
/// The glossary's words in identifiers, and comments that begin with their subject.
std::vector<finding> check_words(const source& s);
/// Line and file lengths, `#pragma once`, words that mark unfinished work.
std::vector<finding> check_form(const source& s);
/// Functions that fit a screen.
std::vector<finding> check_functions(const source& s);
/// A paper is named by its own verbs and examples, and by policies.def: others ask policies'
/// traits.
std::vector<finding> check_papers(const source& s, const checkout& c);
/// Links of a page to files of the project, and the commands in its code blocks.
std::vector<finding> check_page(const source& s, const checkout& c);

/// Sources that a CMake file names.
std::vector<finding> check_build_file(const source& s, const checkout& c);

/// "docs/a/../b.md" without the dots.
std::string normal_path(const std::string& path);

/// Every rule that applies to the file.
std::vector<finding> check(const source& s, const checkout& c);

/// The commands of ./dev, read from its text.
std::vector<std::string> read_dev_commands(const source& dev);
/// The verbs of the program, from cli/verbs/verbs.def.
std::vector<std::string> read_verbs(const source& list);
/// The names of the policies, from planners/policy/policies.def.
std::vector<std::string> read_policies(const source& list);

}  // namespace troupe::tidy
