#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <memory>

#include "planners/cost/batch_split.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/instances.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/search/job_space/cost_model_times.hpp"
#include "planners/search/space/space_bound.hpp"
#include "planners/search/space/space_search.hpp"

// The search with the cost model's closed form, beside every plan of random small clusters.

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Whether each stage has room for the micro-batches that 1F1B would hold, were there enough.
bool holds_all(const cluster& c, const job_spec& job, const plan& how) {
  const auto parts = parts_of(job, how.stages);
  if (!parts) return false;
  std::vector<const gpu_type*> types;
  for (const auto& s : how.stages) types.push_back(&c.gpus[*s.gpu]);
  const auto stages = static_cast<std::uint32_t>(how.stages.size());
  const auto bytes = bytes_by_stage(job, {std::max(how.microbatches, stages), how.rows}, *parts,
                                    c.settings.memory_headroom, types);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (!(bytes[i] < types[i]->memory_bytes())) return false;
  return true;
}

/// The best score of all plans of an instance whose stages have pieces; infinite: it has none.
double best_of_all(const instances::instance& x) {
  double best = std::numeric_limits<double>::infinity();
  auto with_rows = x;
  for (std::uint32_t r = 1; r <= x.job.global_batch; ++r) {
    if (x.job.global_batch % r != 0) continue;
    if (x.job.pipeline.rows > 0 && x.job.pipeline.rows != r) continue;
    with_rows.job.pipeline.rows = r;
    auto placed = with_rows.job;
    placed.train.emplace().schedule = "megatron";
    with_rows.each_plan([&](const placed_plan& p) {
      if (std::ranges::any_of(p.how.stages, [](const auto& s) { return s.count == 0; })) return;
      if (holds_all(x.c, placed, p.how)) best = std::min(best, plan_score(x.job, p));
    });
  }
  return best;
}

}  // namespace

TEST_CASE("by the cost model the search is as good as every plan of 150 random clusters") {
  constexpr double never = std::numeric_limits<double>::infinity();
  random_source rng{77};
  std::size_t judged = 0, exact = 0;
  double gaps = 0;
  for (int i = 0; i < 150; ++i) {
    instances::instance x{rng, static_cast<std::uint32_t>(1 + rng.below(5))};
    if (rng.chance(0.5)) x.share_nodes(rng, 2);
    x.job.objective = rng.chance(0.5) ? "fastest" : "cheapest";
    // Two of a node may share a stage in the search alone.
    for (auto& n : x.c.nodes) n.gpus = 1;
    const idle_index all{x.c};
    std::optional<idle_index> allowed;
    const auto times = cost_model_times::of(x.c, allowed_idle(x.c, all, x.job, allowed), x.job,
                                            space_named("alike").value());
    const double best = best_of_all(x);
    if (!times) {
      CHECK(!(best < never));
      continue;
    }
    planning_budget budget;
    const auto found = search_space((*times)->problem(), **times, 1, budget);
    CAPTURE(i, x.c.nodes.size(), x.job.global_batch, x.job.objective, best);
    REQUIRE(found.plans.empty() == !(best < never));
    if (found.plans.empty()) continue;
    ++judged;
    exact += found.exact ? 1 : 0;
    // A score of the search is per iteration.
    const auto placed = (*times)->placed(found.plans[0].plan);
    REQUIRE(placed);
    const double score = plan_score(x.job, *placed);
    CHECK(score >= best * (1 - 1e-9));
    if (found.exact) CHECK(score == Approx(best).epsilon(1e-9));
    planning_budget steps{3'000'000};
    const double bound = score_bound((*times)->problem(), **times, found.plans[0].score, steps);
    CHECK(bound <= found.plans[0].score * (best / score) * (1 + 1e-9));
    gaps += 1 - bound / found.plans[0].score;
  }
  CHECK(judged > 80);
  CHECK(exact + 3 >= judged);
  INFO("mean gap " << gaps / static_cast<double>(judged));
  CHECK(gaps / static_cast<double>(judged) < 0.5);
}
