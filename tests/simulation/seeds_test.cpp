#include <cstdlib>

#include <catch2/catch.hpp>

#include "runtime/log.hpp"
#include "simulation/fault_seeds.hpp"

using troupe::simulation::run_fault_seed;

namespace {

/// How many seeds: TROUPE_SEEDS, or a number that suits every build.
std::uint64_t seeds(std::uint64_t usual) {
  const char* wanted = std::getenv("TROUPE_SEEDS");
  return wanted ? std::strtoull(wanted, nullptr, 10) : usual;
}

}  // namespace

TEST_CASE("under every fault seed no GPU is held twice and no accepted job is lost or ends twice") {
  troupe::runtime::set_log_level(
      troupe::runtime::log_level::none);  // controllers die as they are told to
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    INFO("reproduce: TROUPE_SEEDS=" << seed << " build/release/simulation_tests, seed " << seed);
    REQUIRE(run_fault_seed(seed) == "");
  }
}

TEST_CASE("the fault seeds catch a controller that acts before it journals") {
  troupe::runtime::set_log_level(
      troupe::runtime::log_level::none);  // it fails in every possible way

  std::uint64_t caught = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed)
    caught += run_fault_seed(seed, true).empty() ? 0 : 1;
  INFO(caught << " of 40 seeds caught it");
  CHECK(caught > 0);
}
