#include "cli/verbs/studies/provision.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>

#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/espresso/cmr_placer.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/plan_text.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

namespace {

/// A provisioned plan, timed stage by stage.
struct timed_provision {
  planners::provision found;
  std::optional<planners::timed_plan> timed;
  double seconds = 0;  // that the search took
};

// By stage, not by GPU: all pipelines have the same stages.
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
         // Pieces are attention and MLP sublayers, two of which are a layer.
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

// Keys are there without a plan as well, as null: readers of several runs need no cases.
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
          {"interruptions", known(f.interruptions)},
          {"cost_per_hour", f.plan ? json(f.plan->how.cost_per_hour) : json()},
          {"iteration_s", known(f.iteration_s)},
          {"closed_form_s", known(f.closed_form_s)},
          {"total_s", known(f.total_s)},
          {"data_parallel", f.plan ? json(f.plan->how.data_parallel) : json()},
          {"microbatches", f.plan ? json(f.plan->how.microbatches) : json()},
          {"rows_per_microbatch", f.plan ? json(f.plan->how.rows) : json()},
          {"stages", f.plan ? stage_documents(c, job, t) : json::array()},
          {"allocation", where},
          {"search",
           {{"space", "espresso"},
            {"cuts", f.search.cuts},
            {"valued", f.search.valued},
            {"simulated", f.search.simulated},
            {"complete", f.complete},
            {"bound", known(f.bound)},
            {"gap", f.bound > 0 ? json(f.gap()) : json()},
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
  out.line("Valued {} plans in {}; {}.", f.search.valued, duration_text(t.seconds),
           f.bound == 0   ? "no bound of the others was found"
           : f.gap() == 0 ? "none costs less"
                          : fmt::format("none costs more than {:.2g} % less", 100 * f.gap()));
  if (f.interruptions > 0)
    out.line("Spot instances: {:.2g} interruptions are expected, and counted.", f.interruptions);
}

json ratio_documents(const cluster& c, const std::vector<planners::ratio_candidate>& all) {
  json rows = json::array();
  for (const auto& x : all)
    rows.push_back({{"stage", x.stage},
                    {"gpu", c.gpus[x.gpu].name},
                    {"tflops", c.gpus[x.gpu].fp16_tflops},
                    {"memory_gb", c.gpus[x.gpu].memory_gb},
                    {"max_in_memory", x.max_in_memory},
                    {"max_hidden", x.max_hidden},
                    {"ratio", x.ratio},
                    {"taken", x.taken}});
  return rows;
}

void show_ratios(const output& out, const cluster& c,
                 const std::vector<planners::ratio_candidate>& all) {
  table rows{{"stage", "GPU", "TFLOPS", "GB", "l_m", "l_c", "CMR", ""}};
  for (const auto& x : all) {
    const auto& gpu = c.gpus[x.gpu];
    rows.row({fmt::to_string(x.stage), gpu.name, fmt::format("{:g}", gpu.fp16_tflops),
              fmt::format("{:g}", gpu.memory_gb), fmt::format("{:g}", x.max_in_memory),
              fmt::format("{:g}", x.max_hidden), fmt::format("{:.2f}", x.ratio),
              x.taken ? "taken" : ""});
  }
  out.line(
      "\nCompute-memory ratios that the greedy placer compares (Espresso, equation "
      "10):");
  out.text("\n" + rows.text(terminal_columns()));
}

}  // namespace

// Espresso's cost model is of 1F1B, which is Megatron's schedule: another one in the job would not
// be what its plan was priced for.
job_spec provisioned_job(const job_spec& asked) {
  auto job = planners::with_device(asked, name_of(device_kind::sim));
  job.train->schedule = "megatron";
  return job;
}

int show_provision(const output& out, const provision_request& r, const ratio_wish& ratios) {
  const auto& c = r.c;
  const auto job = provisioned_job(r.job);
  const runtime::stopwatch watch;
  std::function<bool()> out_of_time;
  // The budget counts no steps: only the clock ends the search, which then gives its best plan and
  // the bound.
  if (r.limit_s > 0) out_of_time = [&] { return watch.s() > r.limit_s; };
  planners::planning_budget budget{std::numeric_limits<std::uint64_t>::max(), out_of_time};
  timed_provision t;
  t.found = planners::cheapest_plan(c, planners::idle_index{c}, job, budget, r.options);
  t.seconds = watch.s();
  // The search keeps totals only; times of single stages are computed for the plan that is shown.
  if (const auto& p = t.found.plan) {
    auto timed = planners::time_plan(c, job, p->how, p->where);
    if (!timed) return out.failure(timed.error());
    t.timed = std::move(*timed);
  }
  auto d = document(c, job, t);
  std::vector<planners::ratio_candidate> candidates;
  // The greedy placer's ratios explain its choice; for other placers they show what it would have
  // compared.
  if (ratios.wanted && t.found.plan) {
    candidates = planners::explain_ratios(c, job, *t.found.plan, ratios.max_in_memory);
    d["ratios"] = ratio_documents(c, candidates);
  }
  out.document(d);
  if (!t.found.plan) return out.failure(t.found.why);
  show(out, c, job, t);
  if (ratios.wanted) show_ratios(out, c, candidates);
  return exit_done;
}

}  // namespace troupe::cli
