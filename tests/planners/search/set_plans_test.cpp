#include <catch2/catch.hpp>

#include <map>
#include <numeric>

#include "messages/base/time.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/instances.hpp"
#include "planners/search/cut_label.hpp"
#include "planners/search/stage_placer.hpp"

// The plan of a set of stages, and the bounds on it, against all of its orders and cuts.

using namespace troupe;
using namespace troupe::planners;
using instances::instance;

namespace {

struct seen_sets {
  std::size_t sets = 0, possible = 0, too_small = 0;
  std::size_t tight = 0;  // bounds within 1 % of the set's plan
};

/// The least iteration by number of pipelines and stages of each type.
std::map<std::vector<std::uint32_t>, double> shortest_by_set(const instance& x,
                                                             fidelity f = fidelity::closed) {
  const auto job = x.simulated();
  std::map<std::vector<std::uint32_t>, double> min;
  x.each_plan([&](const placed_plan& p) {
    std::vector<std::uint32_t> key(x.c.gpus.size() + 1);
    key[0] = p.how.data_parallel;
    for (const auto& s : p.how.stages) ++key[1 + *s.gpu];
    auto& s = min.try_emplace(key, never).first->second;
    s = std::min(s, f == fidelity::closed ? x.job.global_batch / p.how.samples_per_s
                                          : evaluate(x.c, job, p.how, p.where, f)->iteration_s);
  });
  return min;
}

/// Compares every set of an instance's stages with all of its orders and cuts.
void check_sets(const instance& x, seen_sets& seen, fidelity f = fidelity::closed) {
  const idle_index idle{x.c};
  stage_placer placer{x.c, idle, x.job, f};
  const auto min = shortest_by_set(x, f);
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
      if (stages > placer.max_stages()) continue;
      ++seen.sets;
      const auto found = placer.place(d, counts, never);
      const auto known = min.find(key);
      REQUIRE(found.plan.has_value() == (known != min.end()));
      seen.too_small += !placer.may_hold(d, counts);
      if (!found.plan) continue;
      ++seen.possible;
      REQUIRE(placer.may_hold(d, counts));
      REQUIRE(placer.bound(d, stages)->in_pieces(counts) <= found.iteration_s * (1 + 1e-9));
      REQUIRE(found.iteration_s == Approx(known->second).epsilon(1e-9));
      REQUIRE(found.bound_s == Approx(found.iteration_s).epsilon(1e-9));
      const double bound_s = placer.bound(d, stages)->of(counts);
      REQUIRE(bound_s <= found.iteration_s * (1 + 1e-9));
      seen.tight += stages > 1 && bound_s > 0.99 * found.iteration_s;
      CHECK_FALSE(placer.place(d, counts, found.iteration_s * 0.999).plan);
      const auto all = [&](double limit_s) {
        const auto cuts = placer.cuts_within(d, counts, limit_s, 1'000'000'000);
        REQUIRE(cuts);
        return *cuts;
      };
      CHECK(all(found.iteration_s * 0.999).empty());
      REQUIRE_FALSE(all(found.iteration_s * 1.001).empty());
      CHECK(all(found.iteration_s * 1.001)[0].bound_s == Approx(found.iteration_s));
      // Cut short, the search lets labels stand for others: then this is a bound.
      for (const std::uint64_t steps : {4, 40, 400, 4000})
        REQUIRE(placer.place(d, counts, found.iteration_s * 1.1, {}, placer.fidelity_of(d), {steps})
                    .bound_s <= found.iteration_s * (1 + 1e-9));
      // No bound on a part of an order drops the best where the limit is the best itself.
      REQUIRE(placer.place(d, counts, found.iteration_s * (1 + 1e-9)).iteration_s ==
              Approx(found.iteration_s).epsilon(1e-9));
    }
  }
}

}  // namespace

TEST_CASE("a set's plan is the shortest of all its orders and cuts, and no bound exceeds it") {
  random_source random{20261122};
  seen_sets seen;
  for (int i = 0; i < 400; ++i) {
    CAPTURE(i);
    check_sets(instance{random, static_cast<std::uint32_t>(2 + random.below(5))}, seen);
  }
  CHECK(seen.sets > 1000);
  CHECK(seen.possible > 300);
  CHECK(seen.too_small * 10 > (seen.sets - seen.possible) * 9);
  CHECK(seen.tight > 2);
}

TEST_CASE("where rounds of micro-batches or whole pieces decide, no bound exceeds a plan") {
  random_source random{20261123};
  seen_sets seen;
  for (int i = 0; i < 200; ++i) {
    CAPTURE(i);
    instance x{random, static_cast<std::uint32_t>(4 + random.below(3))};
    // Over slow links it is the rounds; over fast ones the pieces, if no heavy head decides.
    const bool slow = random.chance(0.6);
    const double slower = 0.02 + 0.2 * random.uniform();
    for (auto& n : x.c.nodes) n.inter.gbps *= slow ? slower : 100;
    if (random.chance(0.7)) x.job.model.vocabulary = 1000;
    x.job.model.tied_head = false;
    x.job.global_batch = slow ? 16 : 64;
    x.job.pipeline.rows = 1;
    check_sets(x, seen);
  }
  CHECK(seen.possible > 300);
  CHECK(seen.tight > 10);
}

TEST_CASE("where network cards decide, no bound exceeds a plan, and no plan its simulation") {
  random_source random{20261125};
  seen_sets seen;
  std::size_t longer = 0, close = 0;
  for (int i = 0; i < 150; ++i) {
    CAPTURE(i);
    instance x{random, static_cast<std::uint32_t>(4 + random.below(2))};
    const double slower = 0.01 + 0.1 * random.uniform();
    for (auto& n : x.c.nodes) n.inter.gbps *= slower;
    x.job.global_batch = 16;
    x.job.pipeline.rows = 1;
    check_sets(x, seen, fidelity::lower_bound);
    auto once = x.simulated();
    once.iterations = 1;
    x.each_plan([&](const placed_plan& p) {
      if (p.how.stages.size() < 3 || !random.chance(0.1)) return;
      const double min_s = evaluate(x.c, once, p.how, p.where, fidelity::lower_bound)->iteration_s;
      const double s = evaluate(x.c, once, p.how, p.where, fidelity::simulated)->iteration_s;
      const double closed_s = x.job.global_batch / p.how.samples_per_s;
      REQUIRE(min_s <= std::max(s, closed_s) * (1 + 1e-6));
      longer += min_s > 1.05 * closed_s;
      close += min_s > 0.98 * s;
    });
  }
  CAPTURE(seen.possible, seen.tight, longer, close);
  CHECK(seen.possible > 300);
  CHECK(seen.tight > 10);
  CHECK(longer > 100);
  CHECK(close > 100);
}

TEST_CASE(
    "in long pipelines with slow network cards the cut found is the shortest, and no bound exceeds "
    "it") {
  random_source random{20261126};
  std::size_t compared = 0;
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    instance x{random, static_cast<std::uint32_t>(6 + random.below(3))};
    const double slower = 0.01 + 0.2 * random.uniform();
    for (auto& n : x.c.nodes) n.inter.gbps *= slower;
    for (auto& g : x.c.gpus) g.memory_gb *= 2, g.quota = 0;
    x.job.model.operators.resize(9, {"op", 1e11, 1e7, 1e6});
    for (auto& op : x.job.model.operators) op.flops *= 0.2 + random.uniform();
    x.job.global_batch = 16;
    x.job.pipeline.rows = 1;
    const idle_index idle{x.c};
    stage_placer placer{x.c, idle, x.job, fidelity::lower_bound};
    const auto& types = placer.divisions()[0].types;
    stage_counts counts;
    for (const auto& t : types) counts.push_back(t.stages);
    const cut_effort whole{std::numeric_limits<std::uint64_t>::max()};
    const auto found = placer.place(0, counts, never, {}, fidelity::lower_bound, whole);
    if (!found.plan) continue;
    ++compared;
    const auto shorter = placer.cuts_within(0, counts, found.iteration_s * 0.9999, 1'000'000'000);
    REQUIRE(shorter);
    CHECK(shorter->empty());
    for (const std::uint64_t steps : {40, 400, 4000, 40'000})
      for (const bool rough : {false, true})
        CHECK(placer
                  .place(0, counts, found.iteration_s * 1.05, {}, fidelity::lower_bound,
                         {steps, rough})
                  .bound_s <= found.iteration_s * (1 + 1e-9));
  }
  CHECK(compared > 150);
}

TEST_CASE("where stages share nodes and their slow network cards, no bound exceeds a plan") {
  random_source random{20261124};
  std::size_t possible = 0, tight = 0;
  for (int i = 0; i < 500; ++i) {
    CAPTURE(i);
    instance x{random, static_cast<std::uint32_t>(3 + random.below(4))};
    x.share_nodes(random, 2 + static_cast<std::uint32_t>(random.below(3)));
    const auto min = shortest_by_set(x);
    const idle_index idle{x.c};
    stage_placer placer{x.c, idle, x.job};
    for (const auto& [key, iteration_s] : min) {
      const auto d = static_cast<std::size_t>(std::ranges::find_if(placer.divisions(),
                                                                   [&](const auto& a) {
                                                                     return a.tensor == 1 &&
                                                                            a.pipelines == key[0];
                                                                   }) -
                                              placer.divisions().begin());
      stage_counts counts;
      for (const auto& t : placer.divisions()[d].types) counts.push_back(key[1 + t.gpu]);
      REQUIRE(placer.may_hold(d, counts));
      const auto found = placer.place(d, counts, never);
      REQUIRE(found.bound_s <= iteration_s * (1 + 1e-9));
      const auto within = placer.place(d, counts, iteration_s * (1 + 1e-9));
      REQUIRE(within.bound_s <= iteration_s * (1 + 1e-9));
      ++possible;
      const auto stages = std::accumulate(counts.begin(), counts.end(), 0U);
      tight += stages > 1 && found.bound_s > 0.99 * iteration_s;
    }
  }
  CHECK(possible > 1000);
  CHECK(tight > 200);
}

TEST_CASE("a label that was lowered to stand for another dominates it without slack") {
  random_source random{61};
  std::size_t lowered = 0;
  for (int i = 0; i < 200'000; ++i) {
    CAPTURE(i);
    const auto some_label = [&] {
      cut_label l;
      for (auto* x : {&l.own, &l.delayed_own, &l.delay, &l.tail, &l.min_s, &l.span_s, &l.forward,
                      &l.next_delay})
        *x = 0.05 * random.uniform();
      l.through = 0.05 * random.uniform();
      return l;
    };
    label_order order{.lower_bound = random.chance(0.5), .equal_sends = random.chance(0.5)};
    order.slack_s = 0.05;
    auto a = some_label();
    const auto b = some_label();
    if (!order.better(a, b)) continue;
    order.lower(a, b);
    lowered += a.lowered > 0;
    auto exact = order;
    exact.slack_s = 1e-12;
    auto promised = a;
    promised.lowered = 0;
    REQUIRE(exact.better(promised, b));
    REQUIRE(a.min_s <= b.min_s);
    REQUIRE(a.span_s <= b.span_s);
  }
  CHECK(lowered > 10'000);
}
