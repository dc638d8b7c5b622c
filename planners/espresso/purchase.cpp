#include "planners/espresso/purchase.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "messages/base/time.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/explicit_plan.hpp"

namespace troupe::planners {

cluster at_spot_prices(cluster c) {
  for (auto& p : c.prices) {
    if (p.spot_per_hour > 0)
      p.per_hour = p.spot_per_hour;
    else
      p.interruptions_per_hour = 0;
  }
  return c;
}

purchase::purchase(const cluster& c, const idle_index& idle, const job_spec& job,
                   const provision_options& options)
    : c_{c}, idle_{idle}, job_{job}, options_{options} {
  if (!job_.train) job_.train.emplace();
  job_.train->schedule = "megatron";
  job_.train->device = name_of(device_kind::sim);
  job_.train->costs.clear();  // of another cut
}

job_spec purchase::job_of(const plan& how) const {
  auto job = job_;
  job.pipeline.rows = how.rows;
  job.pipeline.microbatches = 0;
  job.microbatches.reset();
  job.pipeline.tensor_parallel = how.tensor_parallel;
  return job;
}

double purchase::longer(const allocation& where) const {
  if (!options_.spot) return 1;
  double per_hour = 0;
  for (const auto& share : where)
    if (const auto* p = price_at(c_, c_.nodes[share.node].gpu, c_.nodes[share.node].datacenter))
      per_hour += p->interruptions_per_hour;
  // An interruption loses a restart, and half of the time since the last checkpoint.
  return 1 + per_hour / 3600 * (c_.settings.restart_s + c_.settings.checkpoint_s / 2);
}

// A plan is in one datacenter, so that it has no traffic to pay for.
double purchase::cost_of(const candidate& x, double iteration_s) const {
  return longer(x.plan.where) * cost_of_run(static_cast<double>(job_.iterations), iteration_s,
                                            x.plan.how.cost_per_hour, 0);
}

double purchase::simulated_s(const placed_plan& p, planning_budget& budget) {
  const auto job = job_of(p.how);
  const auto e = evaluate(c_, job, p.how, p.where, fidelity::simulated);
  constexpr std::uint64_t units_a_step = 500;
  budget.spend(units_a_step * p.how.microbatches * p.how.stages.size());
  if (!e) return never;
  ++best_.search.simulated;
  return e->iteration_s;
}

bool purchase::keep(const candidate& x, double iteration_s) {
  const double cost = cost_of(x, iteration_s);
  const double work_s = iteration_s * static_cast<double>(job_.iterations);
  const double all_s = longer(x.plan.where) * work_s;
  if (!within_limits(job_, all_s, 0)) return false;
  if (!within_limits(job_, all_s, cost) || (best_.plan && cost >= best_.cost)) return true;
  best_.plan = x.plan;
  best_.plan->how.samples_per_s = job_.global_batch / iteration_s;
  best_.iteration_s = iteration_s;
  best_.closed_form_s = x.closed_form_s;
  best_.total_s = all_s;
  best_.cost = cost;
  const double lost_s = c_.settings.restart_s + c_.settings.checkpoint_s / 2;
  best_.interruptions = lost_s > 0 ? (all_s - work_s) / lost_s : 0;
  return true;
}

double purchase::offer(std::vector<candidate> all, planning_budget& budget) {
  const auto closed = [&](const candidate& x) { return cost_of(x, x.closed_form_s); };
  std::ranges::stable_sort(all, {}, closed);
  double too_slow = never;
  for (const auto& x : all) {
    if (best_.plan && closed(x) * shortest() >= best_.cost) break;
    const double s = options_.simulate ? simulated_s(x.plan, budget) : x.closed_form_s;
    if (s < never && !keep(x, s)) too_slow = std::min(too_slow, s / x.closed_form_s);
    if (options_.simulate && best_.plan && budget.exhausted()) break;
  }
  return too_slow == never ? 1 : too_slow;
}

void purchase::shift_pieces(planning_budget& budget) {
  constexpr std::size_t few_stages = 6;  // schedules that are quick to simulate
  if (!best_.plan || !options_.simulate || best_.plan->how.groups) return;
  if (best_.plan->how.stages.size() > few_stages) return;
  for (bool cheaper = true; std::exchange(cheaper, false) && !budget.exhausted();) {
    const auto how = best_.plan->how;
    for (std::size_t from = 0; from < how.stages.size(); ++from)
      for (std::size_t to = 0; to < how.stages.size(); ++to) {
        if (from == to || how.stages[from].count < 2) continue;
        std::vector<stage_request> stages;
        for (const auto& s : how.stages)
          stages.push_back({s.gpu.value(), s.count, s.tensor_parallel});
        --stages[from].pieces, ++stages[to].pieces;
        const auto p = plan_of_stages(c_, idle_, job_of(how), stages, how.data_parallel);
        if (!p || !fits(c_, idle_, p->how, p->where)) continue;
        const auto before = best_.cost;
        candidate x{*p, job_.global_batch / p->how.samples_per_s};
        if (cost_of(x, x.closed_form_s) < 1.01 * before) keep(x, simulated_s(*p, budget));
        cheaper = cheaper || best_.cost < before;
      }
  }
}

}  // namespace troupe::planners
