#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "harness/source_dir.hpp"
#include "runtime/host/log.hpp"
#include "simulation/fault_seeds.hpp"
#include "simulation/planted.hpp"
#include "simulation/seed_workers.hpp"

namespace troupe {

int planted_bug = 0;

}  // namespace troupe

namespace {

/// The sentence of planted.txt for each bug.
std::map<int, std::string> planted_bugs() {
  std::ifstream in{troupe::test::source_dir() + "/tests/simulation/planted.txt"};
  std::map<int, std::string> bugs;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("bug ")) continue;
    const int bug = std::stoi(line.substr(4));
    std::getline(in, line);
    bugs.try_emplace(bug, line);
  }
  return bugs;
}

}  // namespace

TEST_CASE("every planted bug is caught within two hundred fault seeds") {
  using namespace troupe::simulation;
  troupe::runtime::set_log_level(troupe::runtime::log_level::none);
  const char* only = std::getenv("TROUPE_BUG");
  const auto bugs = planted_bugs();
  CHECK(bugs.size() >= 17);
  for (const auto& [bug, sentence] : bugs) {
    if (only && std::stoi(only) != bug) continue;
    troupe::planted_bug = bug;
    auto caught = run_seeds(1, 200, only ? 200 : 1, run_fault_seed);
    if (caught.empty()) caught = run_seeds(1, 200, only ? 200 : 1, run_changing_seed);
    if (caught.empty()) caught = run_seeds(1, 200, only ? 200 : 1, run_union_seed);
    if (caught.empty()) caught = run_seeds(1, 200, only ? 200 : 1, run_program_seed);
    INFO("bug " << bug << ": " << sentence);
    if (!sentence.starts_with("second line of defence: ")) CHECK_FALSE(caught.empty());
    for (const auto& c : caught)
      std::printf("bug %d (%s): seed %llu, %s\n", bug, sentence.c_str(),
                  static_cast<unsigned long long>(c.seed), c.wrong.c_str());
    std::fflush(stdout);
  }
  troupe::planted_bug = 0;
}

TEST_CASE("without a planted bug the oracle finds nothing wrong") {
  using namespace troupe::simulation;
  troupe::runtime::set_log_level(troupe::runtime::log_level::none);
  for (const auto& b : run_seeds(1, 20, 1, run_fault_seed))
    FAIL_CHECK("seed " << b.seed << ": " << b.wrong);
}
