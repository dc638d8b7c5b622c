#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "harness/scratch.hpp"
#include "harness/source_dir.hpp"
#include "runtime/host/log.hpp"
#include "runtime/journal/sqlite_journal.hpp"
#include "simulation/fault_seeds.hpp"
#include "simulation/planted.hpp"
#include "simulation/refused_union.hpp"
#include "simulation/seed_workers.hpp"

namespace troupe {

int planted_bug = 0;

}  // namespace troupe

namespace {

std::ifstream table(const char* name) {
  return std::ifstream{troupe::test::source_dir() + "/tests/simulation/" + name};
}

/// The sentence of planted.txt for each bug.
std::map<int, std::string> planted_bugs() {
  auto in = table("planted.txt");
  std::map<int, std::string> bugs;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("bug ")) continue;
    const int bug = std::stoi(line.substr(4));
    std::getline(in, line);
    bugs.try_emplace(bug, line);
  }
  return bugs;
}

/// The sentences of broken_invariants.txt of which each bug must end with one.
std::map<int, std::vector<std::string>> broken_invariants() {
  auto in = table("broken_invariants.txt");
  const std::string ends = "ends with: ";
  std::map<int, std::vector<std::string>> bugs;
  int bug = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("bug ")) bugs[bug = std::stoi(line.substr(4))];
    if (line.starts_with(ends)) bugs[bug].push_back(line.substr(ends.size()));
  }
  return bugs;
}

/// Everything that processes forked while this lives write to their standard error output.
class written_errors {
 public:
  written_errors() : before_{::dup(STDERR_FILENO)} {
    std::fflush(stderr);
    ::dup2(::fileno(to_), STDERR_FILENO);
  }
  ~written_errors() {
    std::fflush(stderr);
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    std::fclose(to_);
  }
  written_errors(const written_errors&) = delete;
  std::string text() const {
    std::string all;
    std::rewind(to_);
    for (int c; (c = std::fgetc(to_)) != EOF;) all += static_cast<char>(c);
    return all;
  }

 private:
  std::FILE* to_ = std::tmpfile();
  int before_;
};

/// A journal on a disk through its life: batches, a snapshot, more batches, the next process.
std::string run_journal(std::uint64_t seed) {
  using troupe::runtime::sqlite_journal;
  const troupe::test::scratch where;
  const auto file = where.path("journal.sqlite");
  const auto entry = [](std::uint64_t n) {
    return troupe::journal_entry{troupe::epoch_begun{n, static_cast<double>(n)}};
  };
  std::uint64_t next = seed;
  std::vector<troupe::journal_entry> expected;
  {
    auto j = sqlite_journal::open(file);
    if (!j) return j.error().text;
    const auto append = [&] {
      const std::vector batch{entry(next), entry(next + 1), entry(next + 2)};
      next += batch.size();
      expected.insert(expected.end(), batch.begin(), batch.end());
      return (*j)->append(batch);
    };
    for (int i = 0; i < 3; ++i)
      if (auto ok = append(); !ok) return ok.error().text;
    expected = {entry(next)};
    if (auto ok = (*j)->compact(expected); !ok) return ok.error().text;
    for (int i = 0; i < 3; ++i)
      if (auto ok = append(); !ok) return ok.error().text;
  }
  auto j = sqlite_journal::open(file);
  if (!j) return j.error().text;
  std::vector<troupe::journal_entry> found;
  if (auto ok = (*j)->replay([&](const auto& e) { found.push_back(e); }); !ok)
    return ok.error().text;
  return found == expected ? "" : "the next process finds other entries";
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
    if (caught.empty()) caught = run_seeds(1, 200, only ? 200 : 1, run_groups_seed);
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

TEST_CASE("each bug that breaks an invariant ends its process with the invariant's sentence") {
  using namespace troupe::simulation;
  troupe::runtime::set_log_level(troupe::runtime::log_level::none);
  const char* only = std::getenv("TROUPE_BUG");
  const auto bugs = broken_invariants();
  CHECK(bugs.size() >= 40);
  for (const auto& [bug, sentences] : bugs) {
    if (only && std::stoi(only) != bug) continue;
    REQUIRE_FALSE(sentences.empty());
    troupe::planted_bug = bug;
    std::string said;
    std::vector<bad_seed> caught;
    {
      const written_errors errors;
      caught = run_seeds(1, 1, 1, run_journal);
      if (caught.empty()) caught = run_seeds(1, 1, 1, run_refused_union);
      for (const auto& run :
           {run_fault_seed, run_changing_seed, run_union_seed, run_program_seed, run_groups_seed})
        if (caught.empty()) caught = run_seeds(1, 40, 1, run);
      said = errors.text();
    }
    INFO("bug " << bug << ": " << (caught.empty() ? "nothing is wrong" : caught.front().wrong)
                << "; " << said);
    const bool ended = std::ranges::any_of(sentences, [&](const std::string& s) {
      return said.find("broken invariant: " + s + " (") != std::string::npos;
    });
    CHECK(ended);
    if (!caught.empty())
      std::printf("bug %d: seed %llu, %s", bug,
                  static_cast<unsigned long long>(caught.front().seed),
                  said.substr(0, said.find('\n') + 1).c_str());
    std::fflush(stdout);
  }
  troupe::planted_bug = 0;
}

TEST_CASE("without a planted bug a journal has what was written") {
  CHECK(run_journal(1) == "");
}
