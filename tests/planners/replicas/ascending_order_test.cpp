#include "planners/replicas/ascending_order.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <tuple>

#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

using orders = std::vector<std::vector<std::vector<replica_step>>>;

/// Carries orders out, whoever is chosen by chance among those who can go on. Returns how many
/// steps are left when nobody can.
std::size_t left_over(const orders& all, random_source& random) {
  std::set<std::tuple<std::size_t, std::uint32_t, std::uint32_t, bool>> done;  // by stage
  std::vector<std::vector<std::size_t>> next;
  std::size_t left = 0;
  for (const auto& stage : all) {
    next.emplace_back(stage.size(), 0);
    for (const auto& r : stage) left += r.size();
  }
  for (;;) {
    std::vector<std::pair<std::size_t, std::size_t>> able;
    for (std::size_t s = 0; s < all.size(); ++s)
      for (std::size_t r = 0; r < all[s].size(); ++r) {
        if (next[s][r] == all[s][r].size()) continue;
        const auto& step = all[s][r][next[s][r]];
        const auto has = [&](std::size_t stage, bool backward) {
          return done.contains({stage, step.pipeline, step.microbatch, backward});
        };
        const bool can = step.backward ? has(s, false) && (s + 1 == all.size() || has(s + 1, true))
                                       : s == 0 || has(s - 1, false);
        if (can) able.emplace_back(s, r);
      }
    if (able.empty()) return left;
    const auto [s, r] = able[random.below(able.size())];
    const auto& step = all[s][r][next[s][r]++];
    done.insert({s, step.pipeline, step.microbatch, step.backward});
    --left;
  }
}

/// Micro-batches dealt to replicas by chance, at each stage anew.
stage_works draw(random_source& random, std::size_t stages) {
  std::vector<std::uint32_t> microbatches(1 + random.below(4));
  for (auto& m : microbatches) m = static_cast<std::uint32_t>(1 + random.below(5));
  stage_works work(stages);
  for (auto& stage : work) {
    stage.resize(1 + random.below(4));
    for (std::uint32_t p = 0; p < microbatches.size(); ++p)
      for (std::uint32_t m = 0; m < microbatches[p]; ++m)
        stage[random.below(stage.size())].push_back({p, m, 1});
  }
  return work;
}

}  // namespace

TEST_CASE("orders of any shares end, in any times") {
  random_source random{7};
  for (int round = 0; round < 300; ++round) {
    const auto stages = 1 + random.below(4);
    const auto work = draw(random, stages);
    std::vector<std::uint32_t> in_flight(stages);
    for (auto& n : in_flight) n = static_cast<std::uint32_t>(1 + random.below(4));
    const auto all = ascending_order(work, in_flight);
    CAPTURE(round);
    CHECK(left_over(all, random) == 0);
    for (std::size_t s = 0; s < stages; ++s)
      for (std::size_t r = 0; r < work[s].size(); ++r) {
        std::vector<std::pair<std::uint32_t, std::uint32_t>> forwards, backwards;
        std::size_t begun = 0;
        for (const auto& step : all[s][r]) {
          (step.backward ? backwards : forwards).emplace_back(step.pipeline, step.microbatch);
          step.backward ? --begun : ++begun;
          CHECK(begun <= in_flight[s]);
        }
        CHECK(std::ranges::is_sorted(forwards));
        CHECK(forwards == backwards);
        CHECK(forwards.size() == work[s][r].size());
      }
  }
}

TEST_CASE("stages with one pipeline run 1F1B") {
  const stage_works work(3, {{{0, 0, 4}}});
  const auto all = ascending_order(work, {3, 2, 1});
  const auto text = [](const std::vector<replica_step>& steps) {
    std::string t;
    for (const auto& s : steps) t += (s.backward ? "B" : "F") + std::to_string(s.microbatch) + " ";
    return t;
  };
  CHECK(text(all[0][0]) == "F0 F1 F2 B0 F3 B1 B2 B3 ");
  CHECK(text(all[1][0]) == "F0 F1 B0 F2 B1 F3 B2 B3 ");
  CHECK(text(all[2][0]) == "F0 B0 F1 B1 F2 B2 F3 B3 ");
}

// Each replica in the plan's order, two of one stage in an order that is not ascending.
TEST_CASE("orders that are not ascending can deadlock") {
  random_source random{8};
  const orders crossed{{{{0, 0, false}, {0, 0, true}, {1, 0, false}, {1, 0, true}}},
                       {{{1, 0, false}, {1, 0, true}, {0, 0, false}, {0, 0, true}}}};
  CHECK(left_over(crossed, random) > 0);
}
