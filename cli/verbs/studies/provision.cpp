#include "cli/verbs/studies/provision.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>

#include "cli/common/human.hpp"
#include "cli/common/table.hpp"
#include "planners/core/plan_text.hpp"
#include "planners/cost/plan_time.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

namespace {

/// A provisioned plan, timed stage by stage.
struct timed_provision {
  planners::provision found;
  std::optional<planners::timed_plan> timed;
  double simulated_s = 0;  // an iteration, its schedule carried out
  double seconds = 0;      // that the search took
};

/// Simulated work in 1F1B's order, which the closed form is about.
job_spec trained(job_spec job) {
  job = planners::with_device(std::move(job), "sim");
  job.train->schedule = "megatron";
  return job;
}

json stage_documents(const cluster& c, const job_spec& job, const timed_provision& t) {
  json all = json::array();
  const auto& how = t.found.plan->how;
  for (std::uint32_t s = 0; s < how.stages.size(); ++s) {
    const auto& stage = how.stages[s];
    const auto& k = t.timed->costs[s];
    json nodes = json::array();
    for (std::uint32_t p = 0; p < how.data_parallel; ++p)
      nodes.push_back(c.nodes[t.timed->layout.at(p, s).node].name);
    all.push_back(
        {{"gpu", c.gpus[*stage.gpu].name},
         {"gpus", how.data_parallel * stage.tensor_parallel},
         {"layers", job.model.operators.empty() ? json(stage.count / 2.0) : json(stage.count)},
         {"first_piece", stage.first},
         {"pieces", stage.count},
         {"replicas", 1},
         {"tensor_parallel", stage.tensor_parallel},
         {"bytes_per_gpu", std::llround(stage.bytes_per_gpu)},
         {"forward_s", k.forward_s},
         {"recompute_s", k.recompute_s},
         {"backward_s", k.backward_s},
         {"update_s", t.timed->times.stages[s].update},
         {"exchange_s", t.timed->times.stages[s].exchange},
         {"nodes", nodes}});
  }
  return all;
}

json document(const cluster& c, const job_spec& job, const timed_provision& t) {
  const auto& f = t.found;
  const auto known = [&](double x) { return f.plan ? json(x) : json(); };
  json where = json::array();
  if (f.plan)
    for (const auto& share : f.plan->where)
      where.push_back({{"node", c.nodes[share.node].name},
                       {"gpu", c.gpu_of(share.node).name},
                       {"gpus", share.gpus}});
  return {{"policy", "espresso"},
          {"job", job.name},
          {"cluster", c.name},
          {"feasible", f.plan.has_value()},
          {"cost", known(f.cost)},
          {"cost_per_hour", f.plan ? json(f.plan->how.cost_per_hour) : json()},
          {"iteration_s", known(f.iteration_s)},
          {"simulated_iteration_s", known(t.simulated_s)},
          {"total_s", known(f.total_s)},
          {"data_parallel", f.plan ? json(f.plan->how.data_parallel) : json()},
          {"microbatches", f.plan ? json(f.plan->how.microbatches) : json()},
          {"rows_per_microbatch", f.plan ? json(f.plan->how.rows) : json()},
          {"stages", f.plan ? stage_documents(c, job, t) : json::array()},
          {"allocation", where},
          {"search",
           {{"opened", f.search.opened},
            {"placed", f.search.placed},
            {"pruned_boundary", f.search.pruned_boundary},
            {"pruned_cost", f.search.pruned_cost},
            {"pruned_time", f.search.pruned_time},
            {"pruned_capacity", f.search.pruned_capacity},
            {"complete", f.complete},
            {"bound", known(f.bound)},
            {"bound_at_pop", known(f.search.bound_at_pop)},
            {"gap", known(f.gap())},
            {"seconds", t.seconds}}},
          {"reason", f.plan ? json() : json(f.why.text)}};
}

void show(const output& out, const cluster& c, const job_spec& job, const timed_provision& t) {
  const auto& f = t.found;
  const auto& how = f.plan->how;
  out.line("{} ({}, batch {}) on {} under espresso", job.name, job.model.name, job.global_batch,
           c.name);
  table rows{
      {"stage", "GPU", "GPUs", "size", "GB/GPU", "forward", "backward", "update, all-reduce"}};
  for (std::uint32_t s = 0; s < how.stages.size(); ++s) {
    const auto& stage = how.stages[s];
    const auto& k = t.timed->times.stages[s];
    rows.row({fmt::to_string(s), c.gpus[*stage.gpu].name,
              fmt::to_string(how.data_parallel * stage.tensor_parallel),
              planners::size_text(job.model, stage),
              fmt::format("{:.2f}", stage.bytes_per_gpu / bytes_per_gb), duration_text(k.forward),
              duration_text(k.backward), duration_text(k.update + k.exchange)});
  }
  out.text("\n" + rows.text(terminal_columns()) + "\n");
  out.line("{}: {} per iteration, {} for {} iterations, {:.2f} per hour, {:.2f} in all.",
           planners::split_text(how), duration_text(f.iteration_s), duration_text(f.total_s),
           job.iterations, how.cost_per_hour, f.cost);
  out.line("Searched {} plans in {}; {}.", f.search.opened, duration_text(t.seconds),
           f.complete ? "none costs less"
                      : fmt::format("none costs more than {:.2g} % less", 100 * f.gap()));
}

}  // namespace

int show_provision(const output& out, const cluster& c, const job_spec& asked,
                   const planners::provision_options& options, double limit_s) {
  const auto job = trained(asked);
  const runtime::stopwatch watch;
  std::function<bool()> out_of_time;
  if (limit_s > 0) out_of_time = [&] { return watch.s() > limit_s; };
  planners::planning_budget budget{std::numeric_limits<std::uint64_t>::max(), out_of_time};
  timed_provision t;
  t.found = planners::cheapest_plan(c, planners::idle_index{c}, job, budget, options);
  t.seconds = watch.s();
  if (const auto& p = t.found.plan) {
    auto timed = planners::time_plan(c, job, p->how, p->where);
    if (!timed) return out.no(timed.error());
    const auto e = planners::evaluate(c, job, *timed, planners::fidelity::simulated);
    if (!e) return out.no(e.error());
    t.simulated_s = e->iteration_s;
    t.timed = std::move(*timed);
  }
  out.document(document(c, job, t));
  if (!t.found.plan) return out.no(t.found.why);
  show(out, c, job, t);
  return exit_done;
}

}  // namespace troupe::cli
