#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/cost/layout.hpp"
#include "planners/search/job_space/cost_model_times.hpp"
#include "planners/search/space/space_room.hpp"

// Counts of a bound because of nodes, beside the closed form of random plans on the nodes that
// they have: no pipeline of a plan is through before the floors say so.

using namespace troupe;
using namespace troupe::planners;

namespace {

constexpr double unbounded_s = std::numeric_limits<double>::infinity();

/// Nodes of one to four GPUs of up to two types, with slow cards.
struct small_nodes {
  cluster c;
  job_spec job;

  explicit small_nodes(random_source& r) {
    c.name = "nodes";
    const auto places = r.chance(0.7) ? 1U : 2U;
    for (std::size_t d = 0; d < places; ++d)
      c.datacenters.push_back({"dc" + std::to_string(d), {}});
    if (places > 1) c.wan.push_back({0, 1, 20 * r.uniform(), 0.2 + 20 * r.uniform()});
    auto& m = job.model;
    job.name = m.name = "model";
    m.tied_head = false;
    for (auto n = 3 + r.below(3); n > 0; --n)
      m.operators.push_back(
          {"op", 1e11 * (0.1 + r.uniform()), 2e7 * (0.1 + r.uniform()), 1e7 * (0.1 + r.uniform())});
    const auto types = 1 + r.below(2);
    for (std::size_t t = 0; t < types; ++t) {
      gpu_type g;
      g.name = std::string(1, static_cast<char>('a' + t));
      g.memory_gb = 200;
      g.fp16_tflops = 20 + 200 * r.uniform();
      g.efficiency = 0.5;
      g.memory_gbytes_s = 300 + 700 * r.uniform();
      c.gpus.push_back(g);
    }
    // Cards of a type are mostly alike.
    const double card = 0.5 + 20 * r.uniform() * r.uniform();
    for (auto n = 3 + r.below(4); n > 0; --n)
      c.nodes.push_back({"n" + std::to_string(n),
                         static_cast<std::uint32_t>(r.below(places)),
                         static_cast<gpu_index>(r.below(types)),
                         static_cast<std::uint16_t>(1 + r.below(4)),
                         {"pcie", 128, 5},
                         {"lan", r.chance(0.8) ? card : 2 * card, 20}});
    job.global_batch = 12;
    job.iterations = 100;
    job.objective = "fastest";
    // As a program its stages are busy while they send.
    if (r.chance(0.5)) job.program.command = {job.name};
  }
};

/// Up to three kinds of pipelines, as many of each as there is room for.
std::optional<space_plan> some_plan(random_source& r, const space_problem& p) {
  space_plan plan{p.rows[r.below(p.rows.size())], {0}, {}};
  for (std::uint32_t i = 1; i < p.pieces; ++i)
    if (r.chance(0.5)) plan.firsts.push_back(i);
  auto left = p.microbatches(plan.rows);
  const space_room room{p};
  for (int tries = 0; tries < 12 && left > 0; ++tries) {
    space_group g{1, static_cast<std::uint32_t>(1 + r.below(left)), {}};
    if (!plan.groups.empty() && r.chance(0.7)) g = plan.groups.back();
    g.microbatches = std::min(g.microbatches, left);
    const auto datacenter = static_cast<std::uint32_t>(r.below(p.datacenters));
    const auto same = static_cast<std::uint32_t>(r.below(p.classes.size()));
    while (g.seats.size() < plan.stages())
      g.seats.push_back(
          {r.chance(0.6) ? same : static_cast<std::uint32_t>(r.below(p.classes.size())),
           r.chance(0.8) ? datacenter : static_cast<std::uint32_t>(r.below(p.datacenters))});
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

/// One pipeline of a plan on its nodes.
struct seated_line {
  const cost_model_times& times;
  const space_plan& plan;
  const pipeline_layout& at;
  std::uint32_t pipeline = 0;
  const space_group& group;

  double way_s = 0, steps_s = 0, first_sums_s = 0, last_sums_s = 0;

  bool leaves(std::uint32_t stage) const {
    return at.at(pipeline, stage).node != at.at(pipeline, stage + 1).node;
  }
  std::uint32_t count(std::uint32_t stage) const {
    const auto end = stage + 1 < plan.stages() ? plan.firsts[stage + 1] : times.problem().pieces;
    return end - plan.firsts[stage];
  }
  space_times::node_sum sum(std::uint32_t stage) const {
    return times.node_sum_of(plan.rows, group.seats[stage].cls, plan.firsts[stage], count(stage));
  }
  /// The time of the node's card for a stage's sum.
  double over_card_s(std::uint32_t stage) const {
    double here = 0;
    for (std::uint32_t p = 0; p < at.pipelines; ++p)
      here += at.at(p, stage).node == at.at(pipeline, stage).node ? 1 : 0;
    return 2 * (1 - here / at.pipelines) * sum(stage).card_s;
  }

  void add_up() {
    const auto stages = plan.stages();
    std::vector<double> ways;
    for (std::uint32_t i = 0; i < stages; ++i) {
      const auto cls = group.seats[i].cls;
      const auto behind = stages - 1 - i;
      auto f = times.floor_of(plan.rows, cls, plan.firsts[i], count(i), behind);
      for (const bool next : {false, true}) {
        if (next ? behind == 0 || !leaves(i) : i == 0 || !leaves(i - 1)) continue;
        const auto hop = times.leaving_floor(plan.rows, cls, next);
        f.way_s += hop.way_s, f.step_s += hop.step_s, f.early_s += behind * hop.early_s;
      }
      ways.push_back(f.way_s);
      way_s += f.way_s;
      steps_s = std::max(steps_s, (group.microbatches - 1) * f.step_s - f.early_s);
    }
    for (std::uint32_t i = 0;; ++i) {
      first_sums_s += over_card_s(i);
      if (i + 1 == stages || leaves(i)) break;
      first_sums_s -= sum(i).hidden_s;
    }
    if (over_card_s(0) > 0) first_sums_s += sum(0).update_s;
    for (auto i = stages; i-- > 0;) {
      last_sums_s += over_card_s(i);
      if (i == 0 || leaves(i - 1)) break;
    }
    for (std::uint32_t i = 0; i + 1 < stages; ++i) last_sums_s -= ways[i] - sum(i).forward_s;
  }
};

}  // namespace

TEST_CASE("no plan is faster than its hops that leave a node and its nodes' sums allow") {
  random_source r{97};
  std::size_t valued = 0, leaving = 0, first = 0, last = 0;
  double nearest = 0;
  for (int i = 0; i < 400; ++i) {
    const small_nodes x{r};
    const idle_index all{x.c};
    const auto times = cost_model_times::of(x.c, all, x.job, space_named("full").value());
    if (!times) continue;
    for (int n = 0; n < 20; ++n) {
      const auto plan = some_plan(r, (*times)->problem());
      if (!plan) continue;
      const double seconds = (*times)->value(*plan).seconds;
      const auto placed = (*times)->placed(*plan);
      if (!(seconds < unbounded_s) || !placed) continue;
      const auto at = lay_out_pipelines(x.c, placed->where, (*times)->job_of(*plan), placed->how);
      REQUIRE(at);
      ++valued;
      std::uint32_t pipeline = 0;
      for (const auto& g : plan->groups)
        for (std::uint32_t k = 0; k < g.pipelines; ++k, ++pipeline) {
          seated_line line{**times, *plan, *at, pipeline, g};
          line.add_up();
          CAPTURE(i, n, pipeline, plan->stages(), at->pipelines, x.job.program.command.size());
          const double ends_s = line.way_s + line.steps_s;
          CHECK(ends_s <= seconds * (1 + 1e-9));
          CHECK(ends_s + line.first_sums_s <= seconds * (1 + 1e-9));
          CHECK(ends_s + line.last_sums_s <= seconds * (1 + 1e-9));
          for (std::uint32_t s = 0; s + 1 < plan->stages(); ++s) leaving += line.leaves(s) ? 1 : 0;
          first += line.first_sums_s > 0 ? 1 : 0, last += line.last_sums_s > 0 ? 1 : 0;
          nearest = std::max(nearest, (ends_s + std::max(line.first_sums_s, 0.0)) / seconds);
        }
    }
  }
  CHECK(valued > 1000);
  CHECK(leaving > 1000);
  CHECK(first > 300);
  CHECK(last > 50);
  CHECK(nearest > 0.99);
}
