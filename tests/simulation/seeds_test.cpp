#include <cstdint>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>

#include <catch2/catch.hpp>

#include "actors/control/leases/rare_branches.hpp"
#include "runtime/host/log.hpp"
#include "simulation/fault_seeds.hpp"
#include "simulation/prefill_seeds.hpp"
#include "simulation/refused_union.hpp"
#include "simulation/seed_workers.hpp"

using namespace troupe::simulation;

namespace {

/// A number that TROUPE_SEEDS or TROUPE_FIRST_SEED gives, or the usual one.
std::uint64_t wanted(const char* variable, std::uint64_t usual) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : usual;
}

void expect_good_seeds(std::uint64_t usual,
                       const std::function<std::string(std::uint64_t)>& run = run_fault_seed,
                       const std::string& test = "") {
  // Controllers crash when a test requests it.
  troupe::runtime::set_log_level(troupe::runtime::log_level::none);
  const auto first = wanted("TROUPE_FIRST_SEED", 1), count = wanted("TROUPE_SEEDS", usual);
  constexpr unsigned longest_s = 120;
  const auto bad = run_seeds(first, first + count - 1, 10, run, longest_s);
  for (const auto& b : bad)
    FAIL_CHECK("seed " << b.seed << ": " << b.wrong << "\nreproduce: TROUPE_FIRST_SEED=" << b.seed
                       << " TROUPE_SEEDS=1 build/release/simulation_tests" << test);
  CHECK(bad.empty());
}

}  // namespace

TEST_CASE("500 fault seeds satisfy the oracle") {
  expect_good_seeds(500);
}

TEST_CASE("50 fault seeds with a cluster that changes satisfy the oracle") {
  expect_good_seeds(50, run_changing_seed, " '50 fault seeds *'");
}

TEST_CASE("200 fault seeds with unions and successors satisfy the oracle") {
  expect_good_seeds(200, run_union_seed, " '200 fault seeds *'");
}

TEST_CASE("200 fault seeds with elastic programs satisfy the oracle") {
  expect_good_seeds(200, run_program_seed, " '200 fault seeds with elastic *'");
}

TEST_CASE("10 fault seeds with pipelines in several datacenters satisfy the oracle") {
  expect_good_seeds(10, run_groups_seed, " '10 fault seeds with pipelines *'");
}

TEST_CASE("100 fault seeds with pipelines in several datacenters satisfy the oracle", "[.long]") {
  expect_good_seeds(100, run_groups_seed, " '100 fault seeds with pipelines *'");
}

TEST_CASE("a union on GPUs that another job has is refused, and its jobs run when they are free") {
  CHECK(run_refused_union(1) == "");
}

TEST_CASE("the seeds come to the rare branches of the lease manager") {
  using namespace troupe::actors;
  troupe::runtime::set_log_level(troupe::runtime::log_level::none);
  // Those of programs on real nodes are the business of tests/processes, and members that leave one
  // by one of unions_by_hand_test: one seed in a hundred has any. No policy's decision gets as far
  // as a ledger that refuses it.
  const std::set elsewhere{rare_branch::unable_node,     rare_branch::rank_waited,
                           rare_branch::controller_away, rare_branch::member_done,
                           rare_branch::no_member_left,  rare_branch::refused_union};
  std::set<rare_branch> reached;
  for (const auto& run : {run_fault_seed, run_union_seed, run_program_seed})
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      reached_branches = 0;
      CHECK(run(seed) == "");
      for (std::size_t b = 0; b < rare_branches.size(); ++b)
        if ((reached_branches & (1U << b)) != 0)
          reached.insert(rare_branch{static_cast<std::uint8_t>(b)});
    }
  for (std::size_t b = 0; b < rare_branches.size(); ++b) {
    INFO(rare_branches[b]);
    const rare_branch branch{static_cast<std::uint8_t>(b)};
    CHECK((elsewhere.contains(branch) || reached.contains(branch)));
  }
}

TEST_CASE("2,000 fault seeds satisfy the oracle", "[.long]") {
  expect_good_seeds(2000);
}

TEST_CASE("20 fault seeds of a thousand prefills each satisfy the oracle") {
  expect_good_seeds(
      20, [](std::uint64_t seed) { return run_prefill_seed(seed, 1000); },
      " '20 fault seeds of a thousand *'");
}

TEST_CASE("100 fault seeds of ten thousand prefills each satisfy the oracle", "[.prefills]") {
  expect_good_seeds(
      100, [](std::uint64_t seed) { return run_prefill_seed(seed, 10'000); }, " '[.prefills]'");
}
