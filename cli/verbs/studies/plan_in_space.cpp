#include "cli/verbs/studies/plan_in_space.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "cli/reports/plan_document.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/plan_text.hpp"
#include "planners/search/space/cost_model_times.hpp"
#include "planners/search/space/space_bound.hpp"
#include "planners/search/space/space_search.hpp"
#include "runtime/host/processor_watch.hpp"

namespace troupe::cli {

namespace {

constexpr std::size_t shown_plans = 4;
/// Steps of planning that take about a second of processor time.
constexpr double units_a_second = 180e6;
/// Seconds of the bound, unless more are asked for: the default of --time-limit is espresso's.
constexpr double bound_s = 1.2, default_limit_s = 60;

/// Plans of a search, best first by the simulated iteration of each.
struct space_answer {
  std::string space;
  std::vector<planners::placed_plan> plans;
  std::vector<planners::iteration_estimate> estimates;
  planners::space_result found;
  double bound = 0;  // of the closed form's score
  double search_cpu_s = 0, bound_cpu_s = 0;

  double gap() const {
    const double best = found.plans.front().score;
    return found.exact || !(best > 0) ? 0 : std::max(0.0, 1 - bound / best);
  }
};

void simulate(const cluster& c, const planners::cost_model_times& times, space_answer& a) {
  std::vector<std::pair<planners::placed_plan, planners::iteration_estimate>> all;
  for (const auto& v : a.found.plans) {
    auto placed = times.placed(v.plan);
    if (!placed) continue;
    const auto job = planners::with_device(times.job_of(v.plan), name_of(device_kind::sim));
    auto e = planners::evaluate(c, job, placed->how, placed->where, planners::fidelity::simulated);
    if (!e) continue;
    planners::set_figures(placed->how, *e);
    all.emplace_back(std::move(*placed), std::move(*e));
  }
  std::vector<std::pair<double, std::size_t>> order;  // equal scores in the order of the search
  for (const auto& [placed, e] : all)
    order.emplace_back(
        planners::score_of(times.problem(), {e.iteration_s, planners::cost_of_iteration(e)},
                           placed.how.gpus()),
        order.size());
  std::ranges::sort(order);
  for (const auto& [score, i] : order) {
    a.plans.push_back(std::move(all[i].first));
    a.estimates.push_back(std::move(all[i].second));
  }
}

expected<space_answer> search(const space_request& r, const planners::plan_space& space) {
  space_answer a;
  a.space = space.name;
  const runtime::processor_watch watch;
  const planners::idle_index idle{r.c};
  std::optional<planners::idle_index> allowed;
  const auto times = planners::cost_model_times::of(
      r.c, planners::allowed_idle(r.c, idle, r.job, allowed), r.job, space);
  if (!times) return refuse(times.error());
  planners::planning_budget budget;
  a.found = planners::search_space((*times)->problem(), **times, shown_plans, budget);
  a.search_cpu_s = watch.s();
  if (a.found.plans.empty())
    return refuse(reason::kind::infeasible,
                  "no plan of the space '{}' fits, within the job's limits", space.name);
  if (!a.found.exact) {
    const runtime::processor_watch bound_watch;
    const double seconds = r.limit_s == default_limit_s ? bound_s : r.limit_s;
    planners::planning_budget steps{static_cast<std::uint64_t>(seconds * units_a_second)};
    a.bound =
        planners::score_bound((*times)->problem(), **times, a.found.plans.front().score, steps);
    a.bound_cpu_s = bound_watch.s();
  } else {
    a.bound = a.found.plans.front().score;
  }
  simulate(r.c, **times, a);
  if (a.plans.empty())
    return refuse(reason::kind::infeasible, "no schedule of the space '{}' can be made",
                  space.name);
  return a;
}

json document(const space_request& r, const space_answer& a) {
  json plans = json::array(), where = json::array();
  for (const auto& p : a.plans) plans.push_back(plan_document(r.c, r.job, p.how));
  for (const auto& share : a.plans.front().where)
    where.push_back({{"node", r.c.nodes[share.node].name},
                     {"gpu", r.c.gpu_of(share.node).name},
                     {"gpus", share.gpus}});
  const auto& e = a.estimates.front();
  return {{"space", a.space},
          {"job", r.job.name},
          {"cluster", r.c.name},
          {"feasible", true},
          {"plans", plans},
          {"plan", plan_document(r.c, r.job, a.plans.front().how)},
          {"allocation", where},
          {"estimate",
           {{"iteration_s", e.iteration_s},
            {"closed_form_s", a.found.plans.front().value.seconds},
            {"samples_per_s", e.samples_per_s},
            {"cost_per_hour", e.cost_per_hour},
            {"cost_per_iteration", planners::cost_of_iteration(e)}}},
          {"search",
           {{"cuts", a.found.cuts},
            {"valued", a.found.valued},
            {"exact", a.found.exact},
            {"complete", a.found.complete}}},
          {"bound", a.bound},
          {"gap", a.gap()},
          {"search_cpu_s", a.search_cpu_s},
          {"bound_cpu_s", a.bound_cpu_s},
          {"reason", nullptr}};
}

void show(const output& out, const space_request& r, const space_answer& a) {
  out.line("{} ({}, batch {}) on {} in the space '{}'", r.job.name, r.job.model.name,
           r.job.global_batch, r.c.name, a.space);
  table t{{"", "plan", "GPUs", "rows", "micro-batches", "iteration", "per hour"}};
  for (std::size_t i = 0; i < a.plans.size(); ++i) {
    const auto& how = a.plans[i].how;
    std::string stages;
    for (const auto& s : how.stages)
      stages += fmt::format("{}{} x {}", stages.empty() ? "" : ", ", r.c.gpus[*s.gpu].name,
                            s.tensor_parallel);
    t.row({i == 0 ? ">" : "", fmt::format("{} x ({})", how.data_parallel, stages),
           fmt::to_string(how.gpus()), fmt::to_string(how.rows), fmt::to_string(how.microbatches),
           duration_text(a.estimates[i].iteration_s), fmt::format("{:.2f}", how.cost_per_hour)});
  }
  out.text("\n" + t.text(terminal_columns()) + "\n");
  out.line("{} cuts and {} plans in {} of processor time; {}.", a.found.cuts, a.found.valued,
           duration_text(a.search_cpu_s),
           a.found.exact || a.gap() == 0 ? std::string{"no plan of this space is better"}
           : a.gap() >= 1 ? std::string{"within the limit no bound of the others was found"}
                          : fmt::format("by the closed form none is more than {:.1f} % better",
                                        100 * a.gap()));
}

}  // namespace

int plan_in_space(const output& out, const space_request& r) {
  const auto space = planners::space_named(r.space);
  // Others need kinds, shares or peers over datacenters, which the cost model's plans do not have
  // yet, or have rules of their paper's that no search enforces.
  if (!space || space->name != "alike")
    return out.bad(fmt::format("--space: found '{}', expected alike{}", r.space,
                               space ? ", which alone is searched by the cost model yet" : ""));
  const auto a = search(r, *space);
  if (!a) {
    out.document({{"space", space->name},
                  {"job", r.job.name},
                  {"cluster", r.c.name},
                  {"feasible", false},
                  {"plan", nullptr},
                  {"reason", a.error().text}});
    return out.failure(a.error().text);
  }
  out.document(document(r, *a));
  show(out, r, *a);
  return exit_done;
}

}  // namespace troupe::cli
