#include "cli/verbs/studies/plan_in_space.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "cli/output/human.hpp"
#include "cli/output/table.hpp"
#include "cli/programs/described_program.hpp"
#include "cli/reports/plan_document.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/plan_text.hpp"
#include "planners/search/job_space/job_search.hpp"
#include "runtime/host/processor_watch.hpp"

namespace troupe::cli {

namespace {

constexpr std::size_t shown_plans = 4;
/// Steps of planning that take about a second of processor time.
constexpr double units_a_second = 180e6;
/// Seconds of the bound, unless others are asked for.
constexpr double bound_s = 1.6;

/// Plans of a search, best first by the simulated iteration of each.
struct space_answer {
  std::string space;
  std::vector<planners::placed_plan> plans;
  std::vector<planners::iteration_estimate> estimates;
  planners::job_search::result found;
  double bound = 0;  // of the closed form's score
  double search_cpu_s = 0, bound_cpu_s = 0;

  double gap() const {
    const double best = found.plans.front().found.score;
    return found.exact || !(best > 0) ? 0 : std::max(0.0, 1 - bound / best);
  }
};

void simulate(const cluster& c, space_answer& a) {
  std::vector<std::pair<planners::placed_plan, planners::iteration_estimate>> all;
  std::vector<std::pair<double, std::size_t>> order;  // equal scores in the order of the search
  for (const auto& [times, v] : a.found.plans) {
    auto placed = times->placed(v.plan);
    if (!placed) continue;
    const auto job = times->job_of(v.plan);
    auto e = planners::evaluate(c, job, placed->how, placed->where, planners::fidelity::simulated);
    if (!e) continue;
    planners::set_figures(placed->how, *e);
    order.emplace_back(
        planners::score_of(times->problem(), {e->iteration_s, planners::cost_of_iteration(*e)},
                           placed->how.gpus()),
        all.size());
    all.emplace_back(std::move(*placed), std::move(*e));
  }
  std::ranges::sort(order);
  for (const auto& [score, i] : order) {
    a.plans.push_back(std::move(all[i].first));
    a.estimates.push_back(std::move(all[i].second));
  }
}

expected<space_answer> search(const space_request& r, const planners::plan_space& space) {
  const auto work = facts_of(r.job);
  if (!work.simulated && !(work.has_stages && work.has_model))
    return refuse(reason::kind::invalid,
                  "a search for pipelines is for simulated work and trainings; '{}' is a {}",
                  r.job.name, work.name);
  const auto& wish = r.job.pipeline;
  if (work.has_stages && (!wish.cut.empty() || wish.groups || wish.stages_per_datacenter > 0 ||
                          !r.job.train->costs.empty()))
    return refuse(reason::kind::invalid,
                  "the search chooses the cut and the nodes of a training, but '{}' fixes cut, "
                  "groups, stages_per_datacenter or step times",
                  r.job.name);
  space_answer a;
  a.space = space.name;
  const runtime::processor_watch watch;
  const auto job = as_program(planners::with_device(r.job, name_of(device_kind::sim)), r.job);
  const planners::job_places places{r.c, r.job, true};
  const auto searched =
      planners::job_search::of(r.c, planners::idle_index{r.c}, job, places, space);
  if (!searched) return refuse(searched.error());
  planners::planning_budget budget;
  a.found = searched->search(shown_plans, budget);
  a.search_cpu_s = watch.s();
  const auto one = planners::why_one_datacenter(r.job);
  if (a.found.plans.empty())
    return refuse(reason::kind::infeasible,
                  "no plan of the space '{}' fits, within the job's limits{}", space.name,
                  one.empty() ? one : "; " + one);
  a.bound = a.found.plans.front().found.score;
  if (!a.found.exact) {
    const runtime::processor_watch bound_watch;
    planners::planning_budget steps{
        static_cast<std::uint64_t>(r.limit_s.value_or(bound_s) * units_a_second)};
    a.bound = searched->bound(a.bound, steps);
    a.bound_cpu_s = bound_watch.s();
  }
  simulate(r.c, a);
  if (a.plans.empty())
    return refuse(reason::kind::infeasible, "no schedule of the space '{}' can be made",
                  space.name);
  return a;
}

/// A plan with its stages' datacenter where they all have one, and the cluster several: then the
/// document says where the plan is.
plan with_place(const cluster& c, const planners::placed_plan& p) {
  auto how = p.how;
  if (how.groups || c.datacenters.size() < 2) return how;
  for (auto& s : how.stages) s.datacenter = c.nodes[p.where.front().node].datacenter;
  return how;
}

json document(const space_request& r, const space_answer& a) {
  json plans = json::array(), where = json::array();
  for (const auto& p : a.plans) plans.push_back(plan_document(r.c, r.job, with_place(r.c, p)));
  for (const auto& share : a.plans.front().where)
    where.push_back({{"node", r.c.nodes[share.node].name},
                     {"gpu", r.c.gpu_of(share.node).name},
                     {"gpus", share.gpus}});
  const auto& e = a.estimates.front();
  const auto one = planners::why_one_datacenter(r.job);
  return {{"space", a.space},
          {"one_datacenter", one.empty() ? json() : json(one)},
          {"job", r.job.name},
          {"cluster", r.c.name},
          {"feasible", true},
          {"plans", plans},
          {"plan", plans.front()},
          {"allocation", where},
          {"estimate",
           {{"iteration_s", e.iteration_s},
            {"closed_form_s", a.found.plans.front().found.value.seconds},
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

std::string stages_text(const cluster& c, const group_view& g) {
  std::string stages;
  for (const auto& s : g.stages)
    stages += fmt::format("{}{} x {}", stages.empty() ? "" : ", ", c.gpus[*s.gpu].name,
                          s.tensor_parallel);
  return stages;
}

/// "4 x (A100 x 4, V100 x 2) + 2 x (V100 x 4)": pipelines with the same GPUs once, wherever they
/// are.
std::string pipelines_text(const cluster& c, const plan& how) {
  std::vector<std::pair<std::string, std::uint32_t>> kinds;
  for (const auto& g : groups_of(how)) {
    auto stages = stages_text(c, g);
    const auto same = std::ranges::find(kinds, stages, [](const auto& k) { return k.first; });
    if (same == kinds.end())
      kinds.emplace_back(std::move(stages), g.pipelines);
    else
      same->second += g.pipelines;
  }
  std::string text;
  for (const auto& [stages, pipelines] : kinds)
    text += fmt::format("{}{} x ({})", text.empty() ? "" : " + ", pipelines, stages);
  return text;
}

/// A number, or the smallest and the largest of all groups.
std::string microbatches_of(const plan& how) {
  auto smallest = how.microbatches, largest = smallest;
  for (const auto& g : groups_of(how))
    smallest = std::min(smallest, g.microbatches), largest = std::max(largest, g.microbatches);
  return smallest == largest ? fmt::to_string(smallest)
                             : fmt::format("{} to {}", smallest, largest);
}

void show(const output& out, const space_request& r, const space_answer& a) {
  out.line("{} ({}, batch {}) on {} in the space '{}'", r.job.name, r.job.model.name,
           r.job.global_batch, r.c.name, a.space);
  table t{{"", "plan", "GPUs", "rows", "micro-batches", "iteration", "per hour"}};
  for (std::size_t i = 0; i < a.plans.size(); ++i) {
    const auto& how = a.plans[i].how;
    t.row({i == 0 ? ">" : "", pipelines_text(r.c, how), fmt::to_string(how.gpus()),
           fmt::to_string(how.rows), microbatches_of(how),
           duration_text(a.estimates[i].iteration_s), fmt::format("{:.2f}", how.cost_per_hour)});
  }
  out.text("\n" + t.text(terminal_columns()) + "\n");
  const auto best = with_place(r.c, a.plans.front());
  if (best.groups || best.stages.front().datacenter)
    for (const auto& g : groups_of(best)) out.line("{}", planners::group_sentence(r.c, g));
  if (const auto one = planners::why_one_datacenter(r.job);
      !one.empty() && r.c.datacenters.size() > 1)
    out.line("Note: {}.", one);
  const auto& e = a.estimates.front();
  out.line("An iteration costs {:.4g}, of which {:.4g} for traffic between datacenters.",
           planners::cost_of_iteration(e), e.traffic_per_iteration);
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
  if (!space) {
    std::vector<std::string> known;
    for (const auto& s : planners::plan_spaces()) known.push_back(s.name);
    return out.bad(
        fmt::format("--space: found '{}', expected one of {}", r.space, fmt::join(known, ", ")));
  }
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
