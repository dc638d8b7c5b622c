#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/output/output.hpp"

namespace troupe::cli {

/// One verb of the program: its options, bound to members, and its action. To add one: a file
/// verbs/GROUP/NAME.cpp with make_NAME(), and a line in verbs/verbs.def.
class verb {
 public:
  virtual ~verb() = default;

  /// Declares the options. `--json` is already declared.
  virtual void options(CLI::App& app) = 0;

  /// Takes the words after `--` on the command line; false: this verb has no command.
  virtual bool take_command(const std::vector<std::string>&) { return false; }

  /// Runs the verb and returns the exit status.
  virtual int run(output& out) = 0;
};

#define TROUPE_VERB(name, summary) std::unique_ptr<verb> make_##name();
#include "cli/verbs/verbs.def"
#undef TROUPE_VERB

}  // namespace troupe::cli
