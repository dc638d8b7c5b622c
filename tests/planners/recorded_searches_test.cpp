#include <catch2/catch.hpp>

#include "harness/pipeline_shapes.hpp"
#include "harness/recorded.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/schedules.hpp"
#include "planners/espresso/cheapest_plan.hpp"
#include "planners/instances.hpp"
#include "planners/policy/move.hpp"
#include "planners/policy/placement.hpp"
#include "planners/schedule/evaluate_schedule.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "planners/search/datacenter_selection.hpp"
#include "planners/search/job_space/find_pipelines.hpp"
#include "planners/search/stage_placer.hpp"
#include "planners/variety.hpp"

// The results and the effort of searches, and the schedules.

using namespace troupe;
using namespace troupe::planners;
using instances::instance;
using troupe::test::numbers_in;
using troupe::test::recording;
using troupe::test::values;

namespace {

std::string plan_text(const plan& p) {
  auto out = values(p.data_parallel, p.tensor_parallel, p.pipeline_parallel, p.bytes_per_gpu,
                    p.samples_per_s, p.cost_per_hour, p.microbatches, p.rows);
  for (const auto& s : p.stages) out += values(" ", s.count, s.bytes_per_gpu);
  return out;
}
std::string plan_text(const placed_plan& p) {
  auto out = plan_text(p.how);
  for (const auto& share : p.where) out += " " + values(share.node) + ":" + values(share.gpus);
  return out;
}

/// A limit near what the job takes anyway.
void limit_nearby(random_source& r, job_spec& job, double run_s, double cost) {
  const auto near = [&](double x) { return x * (0.8 + r.uniform()); };
  if (r.chance(0.4)) job.limits.slo_s = near(run_s);
  if (r.chance(0.3)) job.limits.deadline_s = near(run_s);
  if (r.chance(0.4)) job.limits.budget = near(cost);
  if (r.chance(0.2)) job.limits.max_gpus = 1 + std::uint32_t(r.below(5));
}

}  // namespace

TEST_CASE("searches over heterogeneous GPUs find the recorded plans with the recorded effort") {
  recording all{"planners", "searches"};
  random_source r{3};
  const char* objectives[] = {"efficient", "fastest", "cheapest"};
  for (int i = 0; i < 300; ++i) {
    if (i % 5 == 0) all.begin(i);
    instance x{r, static_cast<std::uint32_t>(3 + r.below(6))};
    for (auto& n : x.c.nodes)
      if (r.chance(0.15)) n.gpus = 2;
    if (r.chance(0.3)) {
      x.c.datacenters.push_back({"far", ""});
      for (auto& n : x.c.nodes) n.datacenter = std::uint32_t(r.below(2));
    }
    if (x.job.model.operators.empty() && r.chance(0.3))
      for (auto& g : x.c.gpus)
        if (r.chance(0.7)) g.profile = variety::some_profile(r, x.job.model);
    if (x.c.gpus.size() > 1 && r.chance(0.2)) {
      const auto name = x.c.gpus[1].name;
      x.c.gpus[1] = x.c.gpus[0], x.c.gpus[1].name = name;
    }
    x.job.objective = variety::one_of(r, objectives);
    const idle_index idle{x.c};
    planning_budget plenty{20'000'000};
    if (const auto free = find_pipelines(x.c, idle, x.job, widest_space(), 1, plenty)) {
      const auto& p = free->plans.front();
      limit_nearby(r, x.job, x.run_s(p), x.cost(p));
    }
    planning_budget budget{r.chance(0.2) ? 20'000U : 20'000'000U};
    const auto found = find_pipelines(x.c, idle, x.job, widest_space(), 1 + r.below(3), budget);
    all.add(found ? values(i, found->cuts, found->valued, found->exact, budget.left())
                  : values(i, int(found.error().code), numbers_in(found.error().text)));
    if (found)
      for (const auto& p : found->plans) all.add(plan_text(p));
    for (const std::string name : {"exact", "greedy", "sia", "whale", "hph"}) {
      planning_budget own{r.chance(0.1) ? 20'000U : 1'000'000'000U};
      const auto p = cheapest_plan(x.c, idle, x.job, own, {*provision_placer_named(name)});
      const auto& n = p.search;
      all.add(name, p.iteration_s, p.total_s, p.cost, p.bound, p.complete, p.gap(), n.cuts,
              n.valued, n.simulated, own.left());
      all.add(p.plan ? plan_text(*p.plan) : values(int(p.why.code), numbers_in(p.why.text)));
    }
  }
  all.check();
}

TEST_CASE("datacenters are selected, and trainings placed and moved, as recorded") {
  recording all{"planners", "placements"};
  random_source r{4};
  for (int i = 0; i < 400; ++i) {
    if (i % 5 == 0) all.begin(i);
    const auto c = variety::some_cluster(r, 5, i % 10 == 0 ? 7 : 3);
    auto job = variety::some_training(r);
    idle_index idle{c};
    if (r.chance(0.5)) sample::random_idle(idle, c, r);
    if (r.chance(0.5) || job.slots) job.pipeline.stages = 1 + std::uint32_t(r.below(4));
    if (r.chance(0.4)) job.pipeline.data_parallel = 1U << r.below(3);
    if (r.chance(0.2)) job.pipeline.stages_per_datacenter = 2;
    if (r.chance(0.2)) job.pipeline.tensor_parallel = 2;
    if (r.chance(0.15)) job.limits.max_gpus = 2 + std::uint32_t(r.below(6));
    selection_options o;
    o.batch = r.chance(0.5) ? batch_rule::each : batch_rule::whole;
    if (r.chance(0.3)) o.cell = 1 + std::uint32_t(r.below(3));
    if (r.chance(0.3)) o.max_tasks = 300;
    const auto s = select_datacenters(c, idle, job, o);
    all.add(s ? values(i, s->stages, s->cell, s->communication_to_compute, *s->best, s->simulated)
              : values(i, int(s.error().code)));
    if (s)
      for (const auto& row : s->rows)
        all.add(row.cells, row.gpus, row.microbatches, row.rows, row.pipeline_s, row.allreduce_s,
                row.update_s, row.samples_per_s, row.bytes_per_gpu, row.max_bytes,
                row.cost_per_hour);
    for (const auto& x : what_if_orders(c, idle, job, o))
      all.add(x.order.size(), x.order.front(), x.row.samples_per_s, x.cost_per_batch, x.wan_rtt_ms);
    for (const bool as_wished : {true, false}) {
      planning_budget budget;
      const auto p = place_pipelines(c, idle, job, as_wished, budget);
      all.add(p ? plan_text({p->how, p->where}) : values(int(p.error().code)));
      all.add(budget.left());
      if (!p || !as_wished) continue;
      job_view j;
      j.id = 1, j.training = true, j.how = p->how, j.where = p->where, j.rows = p->how.rows;
      j.spec = std::make_shared<const job_spec>(job);
      auto rest = idle;
      for (const auto& share : p->where)
        rest.set_idle(share.node, rest.idle(share.node) - share.gpus);
      move_wish wish;
      if (r.chance(0.5)) wish.stages = 1 + std::uint32_t(r.below(4));
      if (r.chance(0.5)) wish.data_parallel = 1U << r.below(3);
      if (r.chance(0.3)) wish.gpu_type = c.gpus[r.below(c.gpus.size())].name;
      const auto to = plan_move(c, rest, j, wish);
      all.add(to ? plan_text({to->how, to->where}) : values(int(to.error().code)));
    }
  }
  all.check();
}

TEST_CASE("schedules are as long as recorded, with planned and with measured times") {
  recording all{"planners", "schedules"};
  random_source r{5};
  for (int i = 0; i < 150; ++i) {
    if (i % 5 == 0) all.begin(i);
    pipeline_shape s;
    s.stages = 1 + std::uint32_t(r.below(6));
    s.pipelines = 1 + std::uint32_t(r.below(4));
    s.microbatches = 1 + std::uint32_t(r.below(8));
    s.stages_of_datacenter = troupe::test::split_evenly(s.stages, 1 + std::uint32_t(r.below(3)));
    s.costs = {1 + r.uniform(), r.uniform(),     1 + 2 * r.uniform(),
               r.uniform() / 2, 4 * r.uniform(), r.chance(0.5) ? 0 : r.uniform()};
    if (r.chance(0.3)) s.cell = 1 + std::uint32_t(r.below(3));
    if (r.chance(0.4)) s.max_in_flight = 1 + std::uint32_t(r.below(s.microbatches));
    s.recompute = r.chance(0.6);
    if (r.chance(0.4))
      for (std::uint32_t k = 0; k < s.stages; ++k)
        s.by_stage.push_back({r.uniform() + 0.3, s.costs.recompute, r.uniform() + 0.6});
    if (r.chance(0.3))
      for (std::uint32_t k = 0; k < s.stages; ++k) s.tail.push_back(r.uniform());
    measured_times t;
    for (std::uint32_t k = 0; k < s.stages * s.pipelines; ++k)
      t.stages.push_back(
          {1 + r.uniform(), r.uniform(), 1 + r.uniform(), r.uniform(), r.uniform(), 0});
    for (std::uint32_t k = 0; k < s.stages; ++k) {
      t.wan.push_back(4 * r.uniform());
      t.lan.push_back(r.uniform() / 2);
    }
    t.wan_latency = s.costs.wan_latency;
    t.iterations = 1 + r.below(12);
    all.add(i, pipeline_lower_bound(s));
    for (const auto name : schedule_names) {
      const auto made = schedule_pipeline(s, name);
      if (!made) {
        all.add(name, int(made.error().code));
        continue;
      }
      double begins = 0, turns = 0;  // weighed, so that an exchange of two is seen
      for (std::size_t p = 0; p < made->tasks.size(); ++p)
        for (const auto& x : made->tasks[p]) begins += x.begin * double(p + 1 + x.microbatch);
      double weight = 1;
      for (const auto& orders : stage_orders(*made))
        for (const auto& x : orders) turns += x.turn * std::fmod(weight *= 1.1, 7);
      all.add(name, made->made_by, made->length, made->max_in_flight, made->shares_wan,
              troupe::test::utilization(*made), begins, turns, simulated_iteration_s(*made, t));
    }
  }
  all.check();
}
