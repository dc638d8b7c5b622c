#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe::mutation_test {

struct run_options {
  std::string module;
  std::filesystem::path folder;  // with MODULE.txt, the list of mutants; for files of its own
  std::filesystem::path equivalent;
  std::vector<std::string> programs;  // the module's tests
  std::size_t mutants = 100;
  std::uint64_t seed = 1;
};

/// Draws mutants, runs the tests that execute them and prints which survive. Returns the exit code:
/// 0 if at least nine of ten are killed.
int run(const run_options& options);

}  // namespace troupe::mutation_test
