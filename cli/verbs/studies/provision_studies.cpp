// `troupe plan --policy espresso` with --pareto or --sweep-slo: many searches, one table.

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "cli/verbs/studies/provision.hpp"
#include "formats/traces/trace.hpp"
#include "planners/espresso/pareto.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/plan_text.hpp"
#include "runtime/host/stopwatch.hpp"
#include "web/report/report_page.hpp"

namespace troupe::cli {

namespace {

using planners::provision;
using planners::provision_placer;

/// A limit on the time of each search.
// Each search has the whole limit: the second of a sweep must not suffer from a slow first.
class timed_searches {
 public:
  explicit timed_searches(double limit_s) : limit_s_{limit_s} {}

  planners::planning_budget next() {
    watch_ = {};
    std::function<bool()> out_of_time;
    if (limit_s_ > 0) out_of_time = [this] { return watch_.s() > limit_s_; };
    return planners::planning_budget{std::numeric_limits<std::uint64_t>::max(), out_of_time};
  }
  double spent_s() const { return watch_.s(); }

 private:
  double limit_s_;
  runtime::stopwatch watch_;
};

json gpu_counts(const cluster& c, const allocation& where) {
  json counts = json::object();
  for (const auto& share : where) {
    const auto& name = c.gpu_of(share.node).name;
    counts[name] = counts.value(name, 0U) + share.gpus;
  }
  return counts;
}

json plan_document(const cluster& c, const provision& p) {
  return {{"cost", p.cost},
          {"total_s", p.total_s},
          {"iteration_s", p.iteration_s},
          {"data_parallel", p.plan->how.data_parallel},
          {"stages", p.plan->how.stages.size()},
          {"gpus", gpu_counts(c, p.plan->where)},
          {"gap", p.gap()}};
}

/// "4 A30, 2 A4000": the GPUs of a plan.
// By type, in the cluster file's order, whatever nodes they are on.
std::string gpus_text(const cluster& c, const allocation& where) {
  std::vector<std::uint32_t> used(c.gpus.size());
  for (const auto& share : where) used[c.nodes[share.node].gpu] += share.gpus;
  std::string text;
  for (gpu_index g = 0; g < used.size(); ++g)
    if (used[g] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", used[g], c.gpus[g].name);
  return text;
}

/// A self-contained HTML page: what plans cost against how long they take, with the job's limits,
/// and a table of the plans.
std::string cost_picture(const cluster& c, const job_spec& job,
                         const planners::pareto_front& front) {
  json plans = json::array();
  for (const auto& p : front.plans)
    plans.push_back({{"cost", p.cost},
                     {"total_s", p.total_s},
                     {"iteration_s", p.iteration_s},
                     {"gpus", gpus_text(c, p.plan->where)},
                     {"split", planners::split_text(p.plan->how)},
                     {"meets", planners::within_limits(job, p.total_s, p.cost).has_value()}});
  // The stricter of both limits.
  const bool timed = job.limits.slo_s || job.limits.deadline_s;
  const double time_s =
      std::min(job.limits.slo_s.value_or(1e300), job.limits.deadline_s.value_or(1e300));
  return web::report_page({{"kind", "cost"},
                           {"job", job.name},
                           {"cluster", c.name},
                           {"iterations", job.iterations},
                           {"limits",
                            {{"time_s", timed ? json(time_s) : json()},
                             {"cost", job.limits.budget ? json(*job.limits.budget) : json()}}},
                           {"plans", std::move(plans)}});
}

}  // namespace

int show_pareto(const output& out, const provision_request& r, const std::string& file) {
  const auto job = provisioned_job(r.job);
  timed_searches searches{r.limit_s};
  auto budget = searches.next();
  // The front is enumerated by limits on the time: each search asks for the cheapest plan that is a
  // little faster than the last.
  const auto front =
      planners::cheapest_by_time(r.c, planners::idle_index{r.c}, job, budget, r.options);
  if (front.plans.empty()) return out.failure(front.why);
  if (auto ok = formats::save_text(file, cost_picture(r.c, job, front)); !ok)
    return out.failure(ok.error());
  json plans = json::array();
  table rows{{"cost", "time", "iteration", "within limits", "GPUs"}};
  for (const auto& p : front.plans) {
    // Plans outside the job's limits stay on the front: they show what a looser limit would save.
    const bool meets = planners::within_limits(job, p.total_s, p.cost).has_value();
    plans.push_back(plan_document(r.c, p));
    plans.back()["within_limits"] = meets;
    rows.row({fmt::format("{:.2f}", p.cost), duration_text(p.total_s), duration_text(p.iteration_s),
              meets ? "yes" : "no", gpus_text(r.c, p.plan->where)});
  }
  out.document({{"policy", "espresso"},
                {"job", job.name},
                {"cluster", r.c.name},
                {"pareto", plans},
                {"complete", front.complete},
                {"seconds", searches.spent_s()},
                {"picture", file}});
  out.text(rows.text(terminal_columns()));
  // The slow end of the front is right all the same: it was searched first.
  if (!front.complete) out.line("The time limit ended the search: faster plans may exist.");
  out.line("{}: open it in a browser", file);
  return exit_done;
}

int sweep_limits(const output& out, const provision_request& r, const std::vector<double>& slos_s) {
  auto job = provisioned_job(r.job);
  timed_searches searches{r.limit_s};
  json sweep = json::array();
  table rows{{"SLO", "exact", "greedy", "sia", "whale", "hph", "GPUs of exact"}};
  for (const double slo_s : slos_s) {
    job.limits.slo_s = slo_s;
    json one{{"slo_s", slo_s}};
    std::vector<std::string> cells{duration_text(slo_s)};
    std::string gpus;
    for (const auto& [name, placer] : planners::provision_placers) {
      auto options = r.options;
      options.placer = placer;
      auto budget = searches.next();
      const auto p = cheapest_plan(r.c, planners::idle_index{r.c}, job, budget, options);
      // None is an answer, too: a heuristic may miss plans that meet the limit.
      one[name] = p.plan ? plan_document(r.c, p) : json();
      cells.push_back(p.plan ? fmt::format("{:.2f}", p.cost) : "none");
      if (p.plan && placer == provision_placer::exact) gpus = gpus_text(r.c, p.plan->where);
    }
    cells.push_back(gpus);
    rows.row(std::move(cells));
    sweep.push_back(std::move(one));
  }
  out.document(
      {{"policy", "espresso"}, {"job", job.name}, {"cluster", r.c.name}, {"sweep", sweep}});
  out.text(rows.text(terminal_columns()));
  return exit_done;
}

}  // namespace troupe::cli
