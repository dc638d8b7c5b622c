#include <catch2/catch.hpp>

#include <map>

#include "messages/time.hpp"
#include "planners/espresso/cost_tree.hpp"
#include "planners/instances.hpp"
#include "planners/pipeline/stage_placer.hpp"

// Espresso's answers against every plan of small instances.

using namespace troupe;
using namespace troupe::planners;
using instances::instance;

TEST_CASE("a set's plan is the shortest of all its orders and cuts, and no bound is above it") {
  random_source random{20261122};
  std::size_t sets = 0, possible = 0;
  for (int i = 0; i < 400; ++i) {
    CAPTURE(i);
    const instance x{random, static_cast<std::uint32_t>(2 + random.below(5))};
    const idle_index idle{x.c};
    stage_placer placer{x.c, idle, x.job};
    // The least iteration by number of pipelines and stages of each type.
    std::map<std::vector<std::uint32_t>, double> least;
    x.each_plan([&](const placed_plan& p) {
      std::vector<std::uint32_t> key(x.c.gpus.size() + 1);
      key[0] = p.how.data_parallel;
      for (const auto& s : p.how.stages) ++key[1 + *s.gpu];
      auto& s = least.try_emplace(key, never).first->second;
      s = std::min(s, x.job.global_batch / p.how.samples_per_s);
    });
    for (std::size_t d = 0; d < placer.divisions().size(); ++d) {
      const auto& types = placer.divisions()[d].types;
      stage_counts counts(types.size());
      for (;;) {
        std::size_t t = 0;
        for (; t < counts.size() && counts[t] == types[t].stages; ++t) counts[t] = 0;
        if (t == counts.size()) break;
        ++counts[t];
        std::vector<std::uint32_t> key(x.c.gpus.size() + 1);
        key[0] = placer.divisions()[d].pipelines;
        std::uint32_t stages = 0;
        for (std::size_t k = 0; k < counts.size(); ++k)
          key[1 + types[k].gpu] = counts[k], stages += counts[k];
        if (stages > placer.most_stages()) continue;
        ++sets;
        const auto found = placer.place(d, counts, never);
        const auto known = least.find(key);
        REQUIRE(found.plan.has_value() == (known != least.end()));
        if (!found.plan) continue;
        ++possible;
        REQUIRE(found.iteration_s == Approx(known->second).epsilon(1e-9));
        REQUIRE(found.bound_s == Approx(found.iteration_s).epsilon(1e-9));
        REQUIRE(placer.bound(d, stages)->of(counts) <= found.iteration_s * (1 + 1e-9));
        CHECK_FALSE(placer.place(d, counts, found.iteration_s * 0.999).plan);
      }
    }
  }
  CHECK(sets > 1000);
  CHECK(possible > 300);
}
