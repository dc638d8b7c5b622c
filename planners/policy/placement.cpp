#include "planners/policy/placement.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/model/engine_memory.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/plans/marp.hpp"
#include "planners/plans/places.hpp"
#include "planners/search/datacenter_selection.hpp"
#include "planners/search/job_space/find_pipelines.hpp"
#include "planners/search/job_space/searched_placement.hpp"
#include "planners/search/selection_table.hpp"

namespace troupe::planners {

namespace {

// The search finds nearly the best plan early.
constexpr std::uint64_t searched_units = 50'000'000;
constexpr std::size_t searched_plans = 4;  // per job

/// The GPUs of a selected row: in each datacenter from the nodes with the most idle GPUs, so that
/// a stage's pipelines are on few nodes. GPUs that share a stage are of one node. Nodes below the
/// selection's least speed are left out: the row's time was computed without them.
allocation gpus_of(const cluster& c, const idle_index& idle, const job_spec& job,
                   const selection& s, std::vector<gpu_index>& types) {
  allocation where;
  const auto& row = *s.chosen();
  const auto together = std::max(1U, job.pipeline.tensor_parallel);
  for (std::size_t i = 0; i < s.datacenters.size(); ++i) {
    auto left = row.partitions[i] * row.data_parallel;
    if (left == 0) continue;
    std::vector<node_index> nodes;
    for (node_index n = 0; n < c.nodes.size(); ++n)
      if (c.nodes[n].datacenter == s.datacenters[i].datacenter && idle.idle(n) >= together &&
          speed_of(c, n, job) >= s.min_flops_s)
        nodes.push_back(n);
    std::ranges::stable_sort(nodes, std::greater{}, [&](auto n) { return idle.idle(n); });
    for (const auto n : nodes) {
      if (left == 0) break;
      const auto take = std::min(left, idle.idle(n) / together);
      where.push_back({n, take * together});
      left -= take;
      if (std::ranges::find(types, c.nodes[n].gpu) == types.end()) types.push_back(c.nodes[n].gpu);
    }
  }
  return where;
}

}  // namespace

std::vector<plan_stage> stages_of(const job_spec& job, const plan& how, double max_bytes,
                                  double headroom, const gpu_type& gpu) {
  const batch_split batch{how.microbatches, how.rows};
  TROUPE_INVARIANT(how.pipeline_parallel > 0, "a model is cut into one stage at least");
  const auto parts = split_model(job, how.pipeline_parallel,
                                 load_of(job, batch, how.pipeline_parallel - 1, max_bytes), gpu);
  const auto bytes = bytes_by_stage(job, batch, parts, headroom, {&gpu});
  std::vector<plan_stage> stages;
  for (std::size_t s = 0; s < parts.size(); ++s)
    stages.push_back(
        {parts[s].first, parts[s].count, std::max(1U, job.pipeline.tensor_parallel), {}, bytes[s]});
  return stages;
}

std::optional<double> bytes_by_marp(const cluster& c, const job_spec& job, const plan& how) {
  if (!facts_of(job).on_engine) return {};
  const auto parts = parts_of(job, how.stages);
  if (!parts || parts->empty()) return {};
  auto elsewhere = job;
  elsewhere.train->device.clear();
  return std::ranges::max(
      bytes_by_stage(elsewhere, {how.microbatches, how.rows}, *parts, c.settings.memory_headroom));
}

namespace {

/// The GPUs that a training waits for, and those of them that are idle.
struct shortfall {
  std::uint64_t needed = 0, idle = 0;
};

/// `which`: a remark on the idle GPUs.
tl::unexpected<reason> too_few_idle(std::uint64_t needed, const plan& best, const idle_index& idle,
                                    const std::string& which = {}) {
  return refuse(reason::kind::insufficient,
                "needs {} GPUs for {} pipelines of {} stages; {} are idle{}", needed,
                best.data_parallel, best.pipeline_parallel, idle.total_idle(), which);
}

/// It waits for GPUs on which it would cost less.
tl::unexpected<reason> too_dear(const job_spec& job, const plan& how) {
  return refuse(reason::kind::insufficient,
                "costs {:.4g} on the GPUs that are idle; its budget is {:g}", cost_of_run(job, how),
                *job.limits.budget);
}

/// When a training starts, and with how much of what it wants. A training holds its GPUs to its
/// end, so that a start on too few is as costly as a long wait:
///  - with stages and pipelines given, it waits for all of them, unless the present GPUs (idle or
///    in use) could never suffice and nodes have had `lease_s` to appear;
///  - otherwise it waits for half of the speed of its best plan, unless nothing else runs.
/// On a cluster that is too small for the wished shape, fewer pipelines or stages will do.
/// `lacks`: gets the GPUs that it waits for, if it is for their number.
expected<placed_plan> place(const snapshot& s, const idle_index& all, const job_view& j,
                            const job_spec& spec, const plan_space* space, planning_budget& budget,
                            std::optional<shortfall>& lacks) {
  // A job without a fixed number of GPUs starts at this fraction of its best speed, rather than on
  // the one GPU that another job has just released.
  constexpr double min_share = 0.5;
  std::optional<idle_index> allowed;
  const auto& idle = allowed_idle(s.cluster, all, spec, allowed);
  const auto& best = j.plans->front();
  const auto& wish = spec.pipeline;
  const bool settled =
      j.progress.attempts > 0 || s.now_s >= j.submitted_s + s.cluster.settings.lease_s;
  const bool fits_cluster = (!wish.stages || best.pipeline_parallel == wish.stages) &&
                            (!wish.data_parallel || best.data_parallel == wish.data_parallel);
  std::uint64_t present = idle.total_idle();
  for (const auto& [id, r] : s.running) present += total_gpus(r.where);
  const bool in_full = wish.stages && wish.data_parallel;
  const auto wanted =
      in_full ? std::uint64_t{wish.stages} * wish.data_parallel * std::max(1U, wish.tensor_parallel)
              : best.gpus();
  lacks.reset();
  const auto wait = [&](std::uint64_t needed) {
    lacks = shortfall{needed, idle.total_idle()};
    return too_few_idle(needed, best, idle, left_out(s.cluster, spec));
  };
  if (idle.total_idle() == 0) return wait(wanted);
  if (fits_cluster && in_full && (!settled || present >= wanted)) {
    if (idle.total_idle() < wanted) return wait(wanted);
    return place_training(s.cluster, idle, spec, true, space, budget);
  }
  // Too few idle GPUs are not worth a full search.
  const bool enough = 2 * std::uint64_t{idle.total_idle()} >= best.gpus();
  if (!settled && !enough) return wait(best.gpus());
  auto placed = place_training(s.cluster, idle, spec, true, space, budget);
  if (!placed && (settled || !fits_cluster))
    placed = place_training(s.cluster, idle, spec, false, space, budget);
  if (!placed) return placed;
  const bool alone = present == idle.total_idle() && settled;
  if (!alone && placed->how.samples_per_s < min_share * best.samples_per_s)
    return wait(best.gpus());
  return placed;
}

/// The first of the job's plans whose stages have idle GPUs of their types.
std::optional<placed_plan> place_planned(const snapshot& s, const idle_index& idle,
                                         const job_view& j) {
  for (const auto& how : *j.plans) {
    const auto job = with_rows(*j.spec, how.rows);
    std::vector<stage_request> stages;
    for (const auto& x : how.stages)
      stages.push_back({x.gpu.value_or(0), x.count, x.tensor_parallel});
    auto where = job_places{s.cluster, *j.spec, true}.first(
        s.cluster, idle, [&](const idle_index& some) -> std::optional<allocation> {
          auto p = how.groups ? plan_of_groups(s.cluster, some, job, *how.groups, how.rows)
                              : plan_of_stages(s.cluster, some, job, stages, how.data_parallel);
          if (!p || !fits(s.cluster, some, how, p->where)) return {};
          return std::move(p->where);
        });
    if (where) return placed_plan{how, std::move(*where)};
  }
  return {};
}

/// If no plan can be placed now: searches over the idle GPUs, and accepts the result unless it is
/// much worse than the best plan on the whole cluster.
expected<placed_plan> place_searched(const snapshot& s, const idle_index& all, const job_view& j,
                                     planning_budget& budget, std::optional<shortfall>& lacks) {
  constexpr double max_score = 2;  // times the best plan's
  const auto& best = j.plans->front();
  std::optional<idle_index> allowed;
  const auto& idle = allowed_idle(s.cluster, all, *j.spec, allowed);
  const auto wait = [&] {
    lacks = shortfall{best.gpus(), idle.total_idle()};
    return too_few_idle(best.gpus(), best, all);
  };
  if (idle.total_idle() == 0) return wait();
  if (auto placed = place_planned(s, idle, j)) return std::move(*placed);
  auto found = find_pipelines(s.cluster, idle, *j.spec, widest_space(), 1, budget);
  if (!found) return wait();
  TROUPE_INVARIANT(!found->plans.empty(), "a search that succeeds has a plan");
  auto& p = found->plans.front();
  const bool alone = s.running.empty() && s.moving.empty();
  if (!alone && plan_score(*j.spec, p.how) > max_score * plan_score(*j.spec, best)) return wait();
  return placed_plan{std::move(p.how), std::move(p.where)};
}

/// Micro-batches of each pipeline.
std::vector<std::uint32_t> shares_of(const std::vector<pipeline_group>& groups) {
  std::vector<std::uint32_t> shares;
  for (const auto& g : groups) shares.insert(shares.end(), g.pipelines, g.microbatches);
  return shares;
}

/// Does each pipeline have as many micro-batches as in the job's last attempt, if these are as
/// large?
bool has_same_shares(const job_view& j, const plan& how) {
  if (how.data_parallel != j.data_parallel) return false;
  if (!how.groups && j.groups.empty()) return true;
  const std::vector<pipeline_group> alike{{how.data_parallel, how.microbatches, {}}};
  return shares_of(how.groups.value_or(alike)) == shares_of(j.groups.empty() ? alike : j.groups);
}

/// A later attempt prefers the shape of the last one, since the results of a training depend on it:
/// the micro-batch size always, and the number of pipelines and their shares of the batch unless
/// others are 1.25 times as fast.
/// A job that ran out of memory is planned as if all jobs took more (with_more_headroom).
expected<placed_plan> place(const snapshot& s, const idle_index& all, const job_view& j,
                            const plan_space* space, planning_budget& budget,
                            std::optional<shortfall>& lacks) {
  if (!j.facts().pipelines) return place_searched(s, all, j, budget, lacks);
  if (j.history.factor != 1) {
    const auto c = with_more_headroom(s.cluster, j.history.factor);
    auto usual = j;
    usual.history.factor = 1;
    return place({s.now_s, c, s.idle, s.waiting, s.running, s.moving}, all, usual, space, budget,
                 lacks);
  }
  // Another micro-batch size would change the training's results.
  const auto same_rows = with_rows(*j.spec, j.rows);
  auto placed = place(s, all, j, same_rows, space, budget, lacks);
  if (!placed && j.rows > 0 && placed.error().code != reason::kind::insufficient)
    return place(s, all, j, *j.spec, space, budget, lacks);
  // And other shares its last digits: to be worth that, a plan must be much faster.
  constexpr double min_gain = 1.25;
  if (!placed || j.data_parallel == 0 || has_same_shares(j, placed->how)) return placed;
  auto same_sums = same_rows;
  same_sums.pipeline.data_parallel = j.data_parallel;
  if (!j.groups.empty()) same_sums.pipeline.groups = chosen_as(s.cluster, j.groups);
  const auto alike = space_named("alike");
  auto same = place(s, all, j, same_sums, space ? &*alike : nullptr, budget, lacks);
  return same && placed->how.samples_per_s < min_gain * same->how.samples_per_s ? same : placed;
}

}  // namespace

cluster with_more_headroom(cluster c, double memory_factor) {
  c.settings.memory_headroom = (1 + c.settings.memory_headroom) * memory_factor - 1;
  return c;
}

job_spec with_rows(job_spec job, std::uint32_t rows) {
  if (rows == 0 || !facts_of(job).has_model || job.pipeline.rows > 0) return job;
  job.pipeline.rows = rows;
  job.pipeline.microbatches = 0;
  job.microbatches.reset();
  return job;
}

bool runs_as_pipelines(const job_spec& job, const std::vector<plan>* plans) {
  return facts_of(job).pipelines || (plans && !plans->empty() && !plans->front().stages.empty());
}

namespace {

expected<placed_plan> place_selected(const cluster& c, const idle_index& idle, const job_spec& job,
                                     bool as_wished, planning_budget& budget) {
  const auto s = select_placement(c, idle, job, as_wished, budget);
  if (!s) return refuse(s.error());
  const auto& row = *s->chosen();
  placed_plan p;
  p.how.data_parallel = row.data_parallel;
  p.how.pipeline_parallel = s->stages;
  p.how.tensor_parallel = std::max(1U, job.pipeline.tensor_parallel);
  p.how.microbatches = row.microbatches;
  p.how.rows = row.rows;
  p.how.bytes_per_gpu = row.bytes_per_gpu;
  p.how.samples_per_s = job.global_batch / row.iteration_s;
  p.how.stages =
      stages_of(job, p.how, row.max_bytes, c.settings.memory_headroom, c.gpus[row.cut_for]);
  p.where = gpus_of(c, idle, job, *s, p.how.gpu_types);
  for (const auto& share : p.where)
    p.how.cost_per_hour += share.gpus * price_per_hour(c, share.node);
  set_traffic(p.how, row.traffic_per_iteration);
  return p;
}

/// On GPUs of the types and datacenters that its user chose.
expected<placed_plan> place_chosen(const cluster& c, const idle_index& all, const job_spec& job) {
  const auto& chosen = *job.pipeline.groups;
  const auto groups = groups_on(c, chosen);
  if (!groups) return refuse(reason::kind::infeasible, groups.error().text);
  std::optional<idle_index> allowed;
  const auto rows = static_cast<std::uint32_t>(job.global_batch / microbatches_of(chosen));
  auto p = plan_of_groups(c, allowed_idle(c, all, job, allowed), job, *groups, rows);
  if (p)
    if (auto ok = fits(c, all, p->how, p->where); !ok) p = refuse(ok.error());
  if (p)
    if (auto ok = within_bounds(c, job, p->where); !ok) p = refuse(ok.error());
  if (!p && all.total_idle() == idle_index{c}.total_idle())
    p.error().code = reason::kind::infeasible;  // with all GPUs idle it is for ever
  return p;
}

/// On GPUs that the job may have together. Algorithm 1's rows are estimates that are quick to make:
/// where a budget may be exceeded, the schedule itself is simulated, and a placement that costs too
/// much gives way to the next one that seems cheaper.
expected<placed_plan> place_in_group(const cluster& c, const idle_index& idle, const job_spec& job,
                                     bool as_wished, planning_budget& budget) {
  constexpr int max_tries = 16;
  auto asked = job;
  for (int tries = 1;; ++tries) {
    auto p = place_selected(c, idle, asked, as_wished, budget);
    if (!p || !facts_of(job).has_model || !job.limits.budget) return p;
    const double estimated = cost_of_run(job, p->how);
    const auto e = evaluate(c, with_device(job, name_of(device_kind::sim)), p->how, p->where,
                            fidelity::simulated);
    if (!e) return refuse(e.error());
    set_figures(p->how, *e);
    if (within_budget(job, p->how) || estimated > *asked.limits.budget || tries == max_tries)
      return p;
    asked.limits.budget = std::nextafter(estimated, 0.0);
  }
}

}  // namespace

// No group alone has all GPUs of the cluster, so that a search over one calls its refusal a want of
// idle GPUs; with all of them idle it is for ever.
expected<placed_plan> place_pipelines(const cluster& c, const idle_index& all, const job_spec& job,
                                      bool as_wished, planning_budget& budget) {
  ++searches_made;
  if (job.pipeline.groups) return place_chosen(c, all, job);
  std::optional<idle_index> allowed;
  const job_places places{c, job, true};
  if (places.anywhere())
    return place_in_group(c, allowed_idle(c, all, job, allowed), job, as_wished, budget);
  std::optional<placed_plan> best;
  std::optional<reason> why;
  for (const auto& group : places.groups()) {
    const auto here = idle_in(c, all, group);
    auto placed = place_in_group(c, allowed_idle(c, here, job, allowed), job, as_wished, budget);
    const auto rank = [&](const placed_plan& p) {
      return std::pair(!within_budget(job, p.how), plan_score(job, p.how));
    };
    if (placed && (!best || rank(*placed) < rank(*best))) best = std::move(*placed);
    if (!placed && (!why || placed.error().code == reason::kind::insufficient))
      why = placed.error();
  }
  if (best) return std::move(*best);
  TROUPE_INVARIANT(why, "a job that has no place has a reason");
  if (why->code == reason::kind::insufficient && all.total_idle() == idle_index{c}.total_idle())
    why->code = reason::kind::infeasible;
  why->text += "; no job spans datacenters without a link: its GPUs are in " + unlinked_text(c);
  return refuse(std::move(*why));
}

expected<placed_plan> place_training(const cluster& c, const idle_index& idle, const job_spec& job,
                                     bool as_wished, const plan_space* space,
                                     planning_budget& budget) {
  auto placed = place_pipelines(c, idle, job, as_wished, budget);
  if (!space || !as_wished || !is_searched(job)) return placed;
  auto found = job.pipeline.groups ? place_by_load(c, idle, job)
                                   : place_by_search(c, idle, job, *space, budget);
  if (!found) return placed;
  return !placed || is_faster(c, job, *found, *placed) ? std::move(*found) : std::move(placed);
}

// MARP first for everything that is not a pipeline: its plans name no GPU and stay valid while the
// cluster's occupancy changes. A pipeline's stages depend on the GPUs they are cut for, so that one
// plan on the empty cluster stands for all: start_trainings makes the real one at the time.
expected<std::vector<plan>> plans_for(const cluster& c, const job_spec& job,
                                      planning_budget& budget, const plan_space* space) {
  const auto work = facts_of(job);
  if (work.exact_gpus) return exact_plans(c, job);
  if (!work.pipelines) {
    auto plans = plans_in_groups(c, job, marp(c, job, budget));
    // A program makes its own stages, if any. For simulated work with a limit of time or cost,
    // stages that meet the limit are planned.
    const bool open = !work.brings_layout && !job.memory && (job.limits.slo_s || job.limits.budget);
    if (plans || !open || plans.error().code != reason::kind::infeasible) return plans;
    auto own = budget.part(searched_units);
    auto found = find_pipelines(c, idle_index{c}, job, widest_space(), searched_plans, own);
    if (!found) return plans;
    std::vector<plan> all;
    for (auto& p : found->plans) all.push_back(std::move(p.how));
    return all;
  }
  const idle_index whole{c};
  auto placed = place_training(c, whole, job, true, space, budget);
  if (!placed) {
    auto fewer = place_pipelines(c, whole, job, false, budget);
    if (!fewer) return refuse(placed.error());
    placed = std::move(fewer);
  }
  const auto& how = placed->how;
  if (work.has_model && how.samples_per_s > 0) {
    const double run_s = job.global_batch / how.samples_per_s * static_cast<double>(job.iterations);
    if (auto ok = within_limits(job, run_s, cost_of_run(job, how)); !ok) return refuse(ok.error());
  }
  return std::vector<plan>{std::move(placed->how)};
}

snapshot start_trainings(const snapshot& s, std::vector<decision>& out,
                         std::optional<idle_index>& room, planning_budget& budget,
                         const plan_space* space) {
  const auto jobs = in_order(s.waiting, true);
  if (jobs.empty()) return s;
  auto& rest = room.emplace(s.idle);
  for (const auto* j : jobs) {
    if (gives_up(*j, out)) continue;
    // Half of the remaining budget for each, so that a job that is slow to plan leaves some for the
    // others; a decision as a whole stays within its budget.
    auto own = budget.part(budget.left() / 2);
    std::optional<shortfall> lacks;
    auto placed = place(s, rest, *j, space, own, lacks);
    budget.charge(own);
    if (placed && !within_budget(*j->spec, placed->how)) placed = too_dear(*j->spec, placed->how);
    if (!placed) {
      if (lacks)
        s.note(j->id, wait_code::too_few, static_cast<double>(lacks->needed),
               static_cast<double>(lacks->idle));
      else
        s.note(j->id, placed.error());
      continue;
    }
    TROUPE_INVARIANT(total_gpus(placed->where) == placed->how.gpus(),
                     "a training's GPUs are those of its plan");
    take(rest, placed->where);
    out.push_back(start_job(j->id, std::move(placed->how), std::move(placed->where)));
  }
  return {s.now_s, s.cluster, rest, s.waiting, s.running, s.moving};
}

reason why_training_waits(const snapshot& s, const job_view& j) {
  if (!has_plans(j)) return why_none(j);
  const auto* note = s.note_of(j.id);
  if (!note) return not_decided_yet();
  if (note->why) return *note->why;
  const auto needed = static_cast<std::uint64_t>(note->first);
  const auto& best = j.plans->front();
  std::optional<idle_index> allowed;
  const bool own = j.facts().pipelines;
  const auto& idle = own ? allowed_idle(s.cluster, s.idle, *j.spec, allowed) : s.idle;
  const auto which = own ? left_out(s.cluster, *j.spec) : std::string{};
  if (idle.total_idle() < needed) return too_few_idle(needed, best, idle, which).value();
  // With that many: those that became idle since, or the decision had them and left them idle.
  const auto* why = note->second < note->first
                        ? ", but were not at the last decision"
                        : ", but on these no plan has half of the speed of its best one";
  return too_few_idle(needed, best, idle, which + why).value();
}

}  // namespace troupe::planners
