#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "harness/scratch.hpp"

namespace troupe::test {

/// The bytes of a file; empty if it cannot be read.
inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// A command's end: its exit status, and what it wrote to both outputs.
struct command_result {
  int status = -1;
  std::string said;
};

/// Runs a command in a shell, without input.
inline command_result run(const std::string& command) {
  const scratch where;
  const int status =
      std::system(("( " + command + " ) >" + where / "said" + " 2>&1 </dev/null").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_file(where / "said")};
}

}  // namespace troupe::test
