#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "messages/domain/link_cost.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/instances.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/search/job_space/cost_model_times.hpp"
#include "planners/search/space/space_bound.hpp"
#include "planners/search/space/space_room.hpp"
#include "planners/search/space/space_search.hpp"
#include "planners/search/space_oracle.hpp"

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
      if (holds_all(x.c, placed, p.how)) best = std::min(best, plan_score(x.job, p.how));
    });
  }
  return best;
}

/// Up to eight GPUs of up to three types in up to three datacenters, with unequal cards and links.
struct scattered {
  cluster c;
  job_spec job;

  explicit scattered(random_source& r) {
    c.name = "scattered";
    const auto places = 1 + r.below(3);
    for (std::size_t d = 0; d < places; ++d)
      c.datacenters.push_back({"dc" + std::to_string(d), {}});
    for (std::uint32_t a = 0; a < places; ++a)
      for (auto b = a + 1; b < places; ++b)
        c.wan.push_back({a, b, 20 * r.uniform(), 0.2 + 20 * r.uniform() * r.uniform()});
    auto& m = job.model;
    job.name = m.name = "model";
    m.tied_head = r.chance(0.3);
    if (r.chance(0.5)) {
      m.hidden = 512, m.heads = 8, m.sequence = 512, m.vocabulary = 16'000, m.layers = 1;
    } else {
      for (auto n = 2 + r.below(2); n > 0; --n)
        m.operators.push_back({"op", 1e11 * (0.1 + r.uniform()), 2e7 * (0.1 + r.uniform()),
                               1e7 * (0.1 + r.uniform())});
    }
    const auto need_gb = 20.0 * shape_of(m).parameters / 1e9;
    const auto types = 1 + r.below(3);
    for (std::size_t t = 0; t < types; ++t) {
      gpu_type g;
      g.name = std::string(1, static_cast<char>('a' + t));
      g.memory_gb = need_gb * (0.3 + 1.5 * r.uniform()) + 0.1;
      g.fp16_tflops = 20 + 200 * r.uniform();
      g.efficiency = 0.5;
      g.memory_gbytes_s = 300 + 700 * r.uniform();
      g.price_per_hour = 0.5 + 5 * r.uniform();
      c.gpus.push_back(g);
    }
    auto left = static_cast<std::uint32_t>(1 + r.below(8));
    for (std::uint32_t n = 0; left > 0; ++n) {
      const auto gpus = std::min(left, static_cast<std::uint32_t>(1 + r.below(2)));
      left -= gpus;
      c.nodes.push_back({"n" + std::to_string(n),
                         static_cast<std::uint32_t>(r.below(places)),
                         static_cast<gpu_index>(r.below(types)),
                         gpus,
                         {"pcie", 128, 5},
                         {"lan", 0.5 + 20 * r.uniform() * r.uniform(), 20}});
    }
    const std::vector<std::uint32_t> batches = {2, 3, 4, 4, 6};
    job.global_batch = batches[r.below(batches.size())];
    job.iterations = 100;
    const std::vector<std::string> objectives = {"fastest", "cheapest", "efficient"};
    job.objective = objectives[r.below(3)];
    // As a program its stages are busy while they send.
    if (r.chance(0.5)) job.program.command = {job.name};
  }
};

/// The problem of a search with times that are those of the plan that a user would ask for: each
/// pipeline a group of its own with the place of every stage.
class asked_times final : public space_times {
 public:
  asked_times(const scattered& x, const cost_model_times& times) : x_{x}, times_{times} {}

  stage_floor floor_of(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                       std::uint32_t) const override {
    return {};
  }
  double tail_floor_s(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                      std::uint32_t) const override {
    return 0;
  }
  double line_s(const space_line&, std::uint32_t) const override { return 0; }

  space_value value(const space_plan& plan) const override {
    const auto& p = times_.problem();
    std::vector<pipeline_group> groups;
    for (const auto& g : plan.groups) {
      pipeline_group one{1, g.microbatches, {}};
      for (std::uint32_t i = 0; i < plan.stages(); ++i) {
        const auto end = i + 1 < plan.stages() ? plan.firsts[i + 1] : p.pieces;
        const auto& k = p.classes[g.seats[i].cls];
        one.stages.push_back({piece(plan.firsts[i]), piece(end) - piece(plan.firsts[i]), k.tensor,
                              type_of(k.kind), 0, g.seats[i].datacenter});
      }
      if (!holds(one.stages, plan.rows)) return {};
      groups.insert(groups.end(), g.pipelines, one);
    }
    const idle_index idle{x_.c};
    const auto made = plan_of_groups(x_.c, idle, times_.job_of(plan), groups, plan.rows);
    if (!made || !fits(x_.c, idle, made->how, made->where)) return {};
    const double seconds = x_.job.global_batch / made->how.samples_per_s;
    return {seconds, seconds * made->how.cost_per_hour / 3600};
  }

 private:
  /// A space of whole layers has units of several pieces.
  std::uint32_t piece(std::uint32_t unit) const {
    const auto pieces = pieces_of(x_.job.model), units = times_.problem().pieces;
    return std::min(pieces, unit * ((pieces + units - 1) / units));
  }
  gpu_index type_of(std::uint32_t kind) const {
    std::vector<gpu_index> seen;
    for (const auto& n : x_.c.nodes)
      if (std::ranges::find(seen, n.gpu) == seen.end()) seen.push_back(n.gpu);
    return seen[kind];
  }
  bool holds(const std::vector<plan_stage>& stages, std::uint32_t rows) const {
    plan how;
    how.stages = stages;
    how.rows = rows;
    how.microbatches = static_cast<std::uint32_t>(stages.size());
    auto job = x_.job;
    job.train.emplace().schedule = "megatron";
    return holds_all(x_.c, job, how);
  }

  const scattered& x_;
  const cost_model_times& times_;
};

/// Whether floors are what space_times.hpp says: no plan with such stages ends earlier.
void check_floors(const cost_model_times& times, const space_plan& plan) {
  const auto value = times.value(plan);
  if (!(value.seconds < std::numeric_limits<double>::infinity())) return;
  const auto& p = times.problem();
  const auto pipelines = plan.pipelines();
  double lines_s = 0, tail_s = 0;
  for (const auto& g : plan.groups) {
    const space_line line{plan.rows, plan.firsts, g.seats};
    double way_s = 0, longest_s = 0;
    for (std::uint32_t i = 0; i < plan.stages(); ++i) {
      const auto end = i + 1 < plan.stages() ? plan.firsts[i + 1] : p.pieces;
      const auto f = times.floor_of(plan.rows, g.seats[i].cls, plan.firsts[i], end - plan.firsts[i],
                                    plan.stages() - 1 - i);
      way_s += f.way_s;
      longest_s = std::max(longest_s, (g.microbatches - 1) * f.step_s - f.early_s);
      for (std::uint32_t n = 1; n <= pipelines; ++n)
        tail_s = std::max(tail_s, times.tail_floor_s(plan.rows, g.seats[i].cls, plan.firsts[i],
                                                     end - plan.firsts[i], n));
    }
    const double line_s = times.line_s(line, g.microbatches);
    CHECK(way_s + longest_s <= line_s * (1 + 1e-9));
    const auto rounds = (g.microbatches + plan.stages() - 1) / plan.stages();
    CHECK(rounds * way_s <= line_s * (1 + 1e-9));
    CHECK(times.line_s(line, g.microbatches + 1) >= line_s);
    lines_s = std::max(lines_s, line_s);
  }
  CHECK(lines_s + tail_s <= value.seconds * (1 + 1e-9));
}

/// A plan of random pipelines with GPUs, or none.
std::optional<space_plan> random_plan(random_source& r, const space_problem& p) {
  space_plan plan{p.rows[r.below(p.rows.size())], {0}, {}};
  for (std::uint32_t i = 1; i < p.pieces; ++i)
    if (r.chance(0.5)) plan.firsts.push_back(i);
  auto left = p.microbatches(plan.rows);
  const space_room room{p};
  for (int tries = 0; tries < 12 && left > 0; ++tries) {
    space_group g{1, static_cast<std::uint32_t>(1 + r.below(left)), {}};
    if (!plan.groups.empty() && r.chance(0.6)) g = plan.groups.back();
    g.microbatches = std::min(g.microbatches, left);
    const auto datacenter = static_cast<std::uint32_t>(r.below(p.datacenters));
    for (std::uint32_t i = 0; i < plan.stages() && g.seats.size() < plan.stages(); ++i)
      g.seats.push_back(
          {static_cast<std::uint32_t>(r.below(p.classes.size())),
           r.chance(0.7) ? datacenter : static_cast<std::uint32_t>(r.below(p.datacenters))});
    plan.groups.push_back(g);
    if (room.holds(plan))
      left -= g.microbatches;
    else
      plan.groups.pop_back();
  }
  if (plan.groups.empty()) return {};
  plan.groups.back().microbatches += left;
  return plan;
}

/// Rates by size of a card: some sizes have better ones than larger sizes.
std::vector<link_rate> some_rates(random_source& r) {
  std::vector<link_rate> all;
  for (std::uint64_t bytes = 1 << 10; bytes < 1 << 26; bytes *= 8)
    all.push_back({bytes, 1 + 40 * r.uniform()});
  return all;
}

/// Nodes of two types whose cards have rates by size and by flow, of which two kinds each.
cluster with_rates(random_source& r) {
  scattered x{r};
  auto c = x.c;
  c.nodes.clear();
  c.gpus.resize(1);
  c.gpus.push_back(c.gpus[0]);
  c.gpus[0].name = "a", c.gpus[1].name = "b";
  for (auto& g : c.gpus) g.memory_gb = 500;
  std::vector<troupe::link> cards;
  for (int i = 0; i < 4; ++i) {
    cards.push_back({"lan", 40, 10.0 * i});
    cards.back().rates = some_rates(r);
    if (i != 1) cards.back().flow_rates = some_rates(r);
  }
  for (std::uint32_t n = 0; n < 24; ++n)
    c.nodes.push_back({"n" + std::to_string(n),
                       static_cast<std::uint32_t>(n / 12 % c.datacenters.size()),
                       static_cast<gpu_index>(n % 2),
                       4,
                       {"pcie", 128, 5},
                       cards[n % 4]});
  return c;
}

/// A route between two stages' nodes: exactly the time of that link by itself.
void check_route(const cluster& c, const lan_route& way, node_index from, node_index to,
                 std::uint32_t flows, double bytes) {
  const auto alone = link_cost_between(c, from, to, flows);
  CHECK(way.alone_s == alone.alone_s(bytes));
  CHECK(way.share == alone.share(bytes));
  CHECK(way.latency_s == alone.latency_s);
}

}  // namespace

TEST_CASE("tensors of a plan take what each of their links takes by itself, bit for bit") {
  random_source rng{94};
  std::size_t checked = 0;
  for (int i = 0; i < 40; ++i) {
    const auto c = with_rates(rng);
    job_spec job;
    auto& m = job.model;
    job.name = m.name = "model";
    m.hidden = 512, m.heads = 8, m.sequence = 512, m.vocabulary = 16'000, m.layers = 3;
    m.tied_head = false;
    job.train.emplace().schedule = "megatron";
    job.global_batch = 0;
    std::vector<pipeline_group> groups;
    for (std::uint32_t g = 0; g < 3; ++g) {
      const auto dc = static_cast<std::uint32_t>(rng.below(c.datacenters.size()));
      pipeline_group one{static_cast<std::uint32_t>(1 + rng.below(3)), 2, {}};
      for (std::uint32_t s = 0; s < 3; ++s)
        one.stages.push_back(
            {2 * s, 2, 1U << rng.below(3), static_cast<gpu_index>(rng.below(2)), 0, dc});
      job.global_batch += one.pipelines * 2;
      groups.push_back(std::move(one));
    }
    const auto made = plan_of_groups(c, idle_index{c}, job, groups, 1);
    if (!made) UNSCOPED_INFO(made.error().text);
    if (!made) continue;
    const auto timed = time_plan(c, job, made->how, made->where);
    REQUIRE(timed);
    const auto& at = timed->layout;
    CAPTURE(i, at.pipelines);
    for (std::uint32_t p = 0; p < at.pipelines; ++p)
      for (std::uint32_t s = 0; s < at.stages; ++s) {
        const auto k = std::size_t{p} * at.stages + s;
        const auto& w = timed->times.routes[k];
        const auto node = at.at(p, s).node;
        const auto sends = [&](std::uint32_t stage) {
          return static_cast<double>(
              timed->costs[std::size_t{p} * at.stages + stage].activation_bytes);
        };
        if (s + 1 < at.stages)
          check_route(c, w.forward, node, at.at(p, s + 1).node, at.flows(p, s), sends(s));
        if (s > 0)
          check_route(c, w.backward, node, at.at(p, s - 1).node, at.flows(p, s), sends(s - 1));
        const auto runs = at.runs_of(s);
        const auto after = std::ranges::upper_bound(runs, p);
        const auto end = after == runs.end() ? at.pipelines : *after;
        const double chunk =
            static_cast<double>(timed->costs[k].gradient_bytes) / (end - *(after - 1));
        for (const auto& to : w.peers)
          for (const auto peer : to.pipelines)
            check_route(c, to.route, node, at.at(peer, s).node, at.flows(p, s), chunk), ++checked;
      }
  }
  CHECK(checked > 200);
}

TEST_CASE("no floor of the cost model is above the time of a plan over several datacenters") {
  random_source rng{91};
  std::size_t valued = 0, several = 0;
  for (int i = 0; i < 300; ++i) {
    const scattered x{rng};
    const idle_index all{x.c};
    const auto times = cost_model_times::of(x.c, all, x.job, space_named("full").value());
    if (!times) continue;
    for (int n = 0; n < 20; ++n) {
      const auto plan = random_plan(rng, (*times)->problem());
      if (!plan) continue;
      CAPTURE(i, n, plan->rows, plan->stages(), plan->groups.size());
      const auto value = (*times)->value(*plan);
      if (!(value.seconds < std::numeric_limits<double>::infinity())) continue;
      ++valued;
      several += plan->groups.size() > 1 ? 1 : 0;
      CHECK(asked_times{x, **times}.value(*plan).seconds == Approx(value.seconds).epsilon(1e-9));
      check_floors(**times, *plan);
    }
  }
  CHECK(valued > 1000);
  CHECK(several > 400);
}

TEST_CASE("over several datacenters the search finds what an exhaustive oracle finds") {
  constexpr double never = std::numeric_limits<double>::infinity();
  random_source rng{92};
  std::size_t judged = 0, several = 0, limited = 0, equal = 0;
  const std::vector<std::string> spaces = {"full", "full", "alike", "sailor"};
  for (int i = 0; i < 9000 && judged < 200; ++i) {
    scattered x{rng};
    const idle_index all{x.c};
    const auto space = space_named(spaces[rng.below(4)]).value();
    auto times = cost_model_times::of(x.c, all, x.job, space);
    if (!times) continue;
    planning_budget few{120'000};  // 600 plans
    auto found = search_space((*times)->problem(), **times, 1, few);
    if (!found.exact || found.valued < 10 || found.plans.empty()) continue;
    if (rng.chance(0.5)) {
      // Limits near the best plan: some of them exclude all.
      const auto& v = found.plans[0].value;
      const auto near = [&] {
        return static_cast<double>(x.job.iterations) * (0.9 + rng.uniform());
      };
      if (rng.chance(0.7)) x.job.limits.slo_s = v.seconds * near();
      if (rng.chance(0.5)) x.job.limits.budget = v.dollars * near();
      if (rng.chance(0.2)) x.job.limits.max_gpus = static_cast<std::uint32_t>(1 + rng.below(6));
      times = cost_model_times::of(x.c, all, x.job, space);
      planning_budget again{120'000};
      found = search_space((*times)->problem(), **times, 1, again);
      ++limited;
    }
    const auto& problem = (*times)->problem();
    const asked_times asked{x, **times};
    const double best = harness::space_oracle{problem, asked}.best();
    CAPTURE(i, problem.space.name, problem.datacenters, problem.kinds.size(), found.valued, best);
    ++judged;
    REQUIRE(found.plans.empty() == !(best < never));
    if (found.plans.empty()) continue;
    several += problem.datacenters > 1 ? 1 : 0;
    CHECK(found.plans[0].score == Approx(best).epsilon(1e-9));
    planning_budget steps{400'000};
    CHECK(score_bound(problem, **times, never, steps) <= best * (1 + 1e-9));
    auto quick = problem;
    quick.exact_plans = 0;
    planning_budget budget;
    const auto searched = search_space(quick, **times, 1, budget);
    if (!searched.plans.empty() && searched.plans[0].score <= best * (1 + 1e-9)) ++equal;
  }
  CHECK(judged == 200);
  CHECK(several > 80);
  CHECK(limited > 60);
  INFO(equal << " of " << judged << " without enumeration");
  CHECK(equal >= 170);
}

TEST_CASE("by the cost model no larger space has a worse plan than pipelines that are alike") {
  random_source rng{93};
  std::size_t with_plan = 0, cut_short = 0, better = 0;
  for (int i = 0; i < 300; ++i) {
    scattered x{rng};
    // Fast links, and micro-batches that no number of equal pipelines divides.
    for (auto& n : x.c.nodes) n.inter.gbps = 200;
    x.job.global_batch = 15 + 4 * static_cast<std::uint32_t>(rng.below(3));
    const idle_index all{x.c};
    const auto alike = cost_model_times::of(x.c, all, x.job, space_named("alike").value());
    const auto full = cost_model_times::of(x.c, all, x.job, space_named("full").value());
    REQUIRE(alike.has_value() == full.has_value());
    if (!alike) continue;
    auto smaller = (*alike)->problem(), larger = (*full)->problem();
    smaller.exact_plans = larger.exact_plans = rng.below(3'000);
    const std::uint64_t steps = 1'000 + rng.below(rng.chance(0.5) ? 50'000 : 5'000'000);
    planning_budget few{steps}, same{steps};
    const auto found = search_space(smaller, **alike, 1, few);
    if (found.plans.empty()) continue;
    const auto of_larger = search_space(larger, **full, 1, same);
    CAPTURE(i, steps, found.exact, of_larger.exact);
    REQUIRE(!of_larger.plans.empty());
    CHECK(of_larger.plans[0].score <= found.plans[0].score * (1 + 1e-12));
    ++with_plan;
    cut_short += found.complete ? 0 : 1;
    better += of_larger.plans[0].score < found.plans[0].score * (1 - 1e-9) ? 1 : 0;
  }
  CHECK(with_plan > 150);
  CHECK(cut_short > 10);
  CHECK(better > 10);
}

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
    const double score = plan_score(x.job, placed->how);
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
