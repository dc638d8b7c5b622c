#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "messages/base/random.hpp"
#include "messages/domain/job_union.hpp"

using namespace troupe;

namespace {

std::vector<member_work> random_members(random_source& r) {
  std::vector<member_work> all;
  for (auto n = 2 + r.below(3); n > 0; --n)
    all.push_back({1 + r.below(30), static_cast<std::uint32_t>(1 + r.below(4))});
  return all;
}

/// Iteration after iteration, member after member, while whole rounds fit into these samples.
std::vector<std::uint64_t> by_rounds(const std::vector<member_work>& all, double samples) {
  std::vector<std::uint64_t> done(all.size());
  while (true) {
    double round = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (done[i] < all[i].iterations) round += all[i].batch;
    if (round == 0 || round > samples + 1e-5) return done;
    samples -= round;
    for (std::size_t i = 0; i < all.size(); ++i) done[i] += done[i] < all[i].iterations;
  }
}

}  // namespace

TEST_CASE("members with adapters do an iteration each in every round until they are done") {
  random_source r{7};
  for (int run = 0; run < 2000; ++run) {
    const auto all = random_members(r);
    const auto total = union_iterations(merge_kind::adapters, all);
    double samples = 0;
    std::uint64_t sum = 0;
    for (const auto& m : all) {
      samples += static_cast<double>(m.iterations) * m.batch;
      sum += m.iterations;
    }
    REQUIRE(total == sum);
    const auto done = r.below(total + 1);
    CHECK(member_iterations(merge_kind::adapters, all, done) ==
          by_rounds(all, samples * static_cast<double>(done) / static_cast<double>(total)));
  }
}

TEST_CASE("members that share their data do the same share of their iterations") {
  random_source r{8};
  for (int run = 0; run < 2000; ++run) {
    const auto all = random_members(r);
    const auto total = union_iterations(merge_kind::shared, all);
    CHECK(total == std::ranges::max(all, {}, &member_work::iterations).iterations);
    const auto done = r.below(total + 1);
    const auto each = member_iterations(merge_kind::shared, all, done);
    for (std::size_t i = 0; i < all.size(); ++i)
      CHECK(each[i] == all[i].iterations * done / total);  // whole numbers: rounded down
  }
}

TEST_CASE("more iterations than a union has are all of them") {
  const std::vector<member_work> all{{3, 2}, {5, 1}};
  for (const auto kind : {merge_kind::shared, merge_kind::adapters})
    CHECK(member_iterations(kind, all, 1000) == std::vector<std::uint64_t>{3, 5});
  CHECK(member_iterations(merge_kind::shared, std::vector<member_work>{}, 5).empty());
}
