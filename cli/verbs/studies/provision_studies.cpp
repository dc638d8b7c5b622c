// `troupe plan --policy espresso` with --pareto or --sweep-slo: many searches, one table.

#include <limits>
#include <utility>

#include "cli/common/human.hpp"
#include "cli/common/table.hpp"
#include "cli/reports/cost_picture.hpp"
#include "cli/verbs/studies/provision.hpp"
#include "messages/base/whole_file.hpp"
#include "planners/plans/bounds.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

namespace {

using planners::provision;
using planners::provision_placer;

constexpr std::pair<const char*, provision_placer> placers[] = {
    {"exact", provision_placer::exact},
    {"greedy", provision_placer::greedy},
    {"sia", provision_placer::sia},
    {"whale", provision_placer::whale},
    {"hph", provision_placer::hph}};

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
  if (auto ok = write_whole_file(file, cost_picture(r.c, job, front)); !ok)
    return out.bad(ok.error());
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
    job.slo_s = slo_s;
    json one{{"slo_s", slo_s}};
    std::vector<std::string> cells{duration_text(slo_s)};
    std::string gpus;
    for (const auto& [name, placer] : placers) {
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
