// The plans of cost_model_times: a search's seats as a job's stages on nodes, and back.

#include <algorithm>
#include <utility>

#include "planners/cost/run_cost.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/search/job_space/cost_model_times.hpp"

namespace troupe::planners {

job_spec cost_model_times::job_of(const space_plan& plan) const {
  auto job = job_;
  job.pipeline.rows = plan.rows;
  job.pipeline.microbatches = 0;
  job.microbatches.reset();
  return job;
}

std::optional<space_plan> cost_model_times::like(const space_plan& plan,
                                                 const std::vector<plan_stage>& stages) const {
  auto out = plan;
  out.firsts.clear();
  out.groups[0].seats.clear();
  for (const auto& s : stages) {
    // A last stage may have the head alone there, but not in every space.
    if (s.first % unit_ != 0 || s.first / unit_ >= problem_.pieces) return {};
    out.firsts.push_back(s.first / unit_);
    const space_class same{kinds_.find({s.gpu.value()}), s.tensor_parallel};
    const auto cls = std::ranges::find(problem_.classes, same) - problem_.classes.begin();
    if (static_cast<std::size_t>(cls) == problem_.classes.size()) return {};
    out.groups[0].seats.push_back(
        {static_cast<std::uint32_t>(cls), plan.groups[0].seats[0].datacenter});
  }
  return out;
}

/// Whether its numbers are those that the job's file gives, and its datacenters those that a plan
/// of the space may have.
bool cost_model_times::is_as_asked(const space_plan& plan) const {
  const auto datacenter = plan.groups[0].seats[0].datacenter;
  if (!problem_.space.several_datacenters)
    for (const auto& g : plan.groups)
      for (const auto& s : g.seats)
        if (s.datacenter != datacenter) return false;
  const auto& asked = job_.pipeline;
  const auto microbatches =
      asked.microbatches > 0 ? asked.microbatches : job_.microbatches.value_or(0);
  const auto other = [&](const space_group& g) { return g.microbatches != microbatches; };
  if (microbatches > 0 && std::ranges::any_of(plan.groups, other)) return false;
  if (asked.stages > 0 && plan.stages() != asked.stages) return false;
  return asked.data_parallel == 0 || plan.pipelines() == asked.data_parallel;
}

/// None: a stage has too little memory.
std::optional<std::vector<plan_stage>> cost_model_times::stages_of(const space_plan& plan,
                                                                   const space_group& group) const {
  std::vector<plan_stage> stages;
  const auto& all = facts(plan.rows).classes;
  for (std::uint32_t i = 0; i < plan.stages(); ++i) {
    const auto& seat = group.seats[i];
    const auto& c = problem_.classes[seat.cls];
    const auto first = plan.firsts[i];
    const auto end = i + 1 < plan.stages() ? plan.firsts[i + 1] : problem_.pieces;
    const auto& of_class = all[seat.cls];
    const auto& k = costs(of_class, first, end - first, plan.stages() - 1 - i);
    if (!(k.bytes + (plan.stages() - i) * k.bytes_each < of_class.memory_bytes)) return {};
    stages.push_back({piece(first), piece(end) - piece(first), c.tensor, kinds_[c.kind].gpu, 0,
                      seat.datacenter});
  }
  return stages;
}

std::optional<allocation> cost_model_times::seated_on(const space_plan& plan) const {
  std::vector<kind_seat> seats;
  for (const auto& g : plan.groups)
    for (std::uint32_t p = 0; p < g.pipelines; ++p)
      for (const auto& s : g.seats) {
        const auto& c = problem_.classes[s.cls];
        seats.push_back({c.kind, s.datacenter, c.tensor});
      }
  return allocation_of(c_, idle_, kinds_, seats);
}

// Groups only where pipelines differ, are in several datacenters, or need nodes of certain speeds:
// other plans are as they always were.
std::optional<placed_plan> cost_model_times::placed(const space_plan& plan) const {
  if (!is_as_asked(plan)) return {};
  std::vector<pipeline_group> groups;
  bool one_place = plan.groups.size() == 1 && !kinds_.has_speeds();
  for (const auto& g : plan.groups) {
    auto stages = stages_of(plan, g);
    if (!stages) return {};
    for (const auto& s : g.seats) one_place = one_place && s.datacenter == g.seats[0].datacenter;
    groups.push_back({g.pipelines, g.microbatches, std::move(*stages)});
  }
  std::optional<allocation> seated;
  if (kinds_.has_speeds()) {
    seated = seated_on(plan);
    if (!seated) return {};
  }
  expected<placed_plan> p;
  if (one_place) {
    std::vector<stage_request> stages;
    for (const auto& s : groups[0].stages) stages.push_back({*s.gpu, s.count, s.tensor_parallel});
    p = plan_of_stages(c_, idle_in_[plan.groups[0].seats[0].datacenter], job_of(plan), stages,
                       groups[0].pipelines);
  } else {
    p = plan_of_groups(c_, idle_, job_of(plan), groups, plan.rows, seated ? &*seated : nullptr);
  }
  if (!p || !fits(c_, idle_, p->how, p->where)) return {};
  return std::move(*p);
}

space_value cost_model_times::value(const space_plan& plan) const {
  const auto p = placed(plan);
  if (!p || !(p->how.samples_per_s > 0)) return {};
  double seconds = job_.global_batch / p->how.samples_per_s;
  if (timing_.by != fidelity::closed) {
    const auto e = evaluate(c_, job_of(plan), p->how, p->where, timing_.by);
    if (!e) return {};
    seconds = e->iteration_s;
  }
  if (timing_.longer) seconds *= timing_.longer(p->where);
  const auto& how = p->how;
  return {seconds,
          cost_of_run(1, seconds, how.cost_per_hour, how.traffic_per_iteration.value_or(0))};
}

}  // namespace troupe::planners
