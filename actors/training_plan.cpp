#include "actors/training_plan.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "planners/pipeline_costs.hpp"

namespace troupe::actors {

namespace {

using planners::pipeline_layout;

class maker {
 public:
  maker(const cluster& c, lease_id lease, const train_order& order, const std::string& backend)
      : c_{c}, lease_{lease}, order_{order}, job_{order.spec} {
    if (!job_.train) job_.train.emplace();
    auto& device = job_.train->device;
    if (job_.slots) device = "sim";
    if (device.empty()) device = backend;
  }

  expected<training_plan> make() {
    auto layout = planners::lay_out_pipelines(c_, order_.parts, job_, order_.how.pipeline_parallel,
                                              order_.how.data_parallel);
    if (!layout) return tl::unexpected<reason>(layout.error());
    layout_ = std::move(*layout);
    batches_ = planners::split_batch(job_, layout_.stages, layout_.pipelines);
    if (batches_.microbatches == 0)
      return refuse(reason::kind::invalid,
                    fmt::format("a batch of {} does not divide among {} pipelines, or their shares "
                                "not into micro-batches",
                                job_.global_batch, layout_.pipelines));
    for (std::uint32_t s = 0; s < layout_.stages; ++s) costs_.push_back(costs_of(s));
    training_plan plan;
    plan.shape = planners::shape_of(c_, job_, layout_);
    plan.schedule_name = job_.train->schedule.empty() ? "best" : job_.train->schedule;
    for (std::uint32_t s = 0; s + 1 < layout_.stages; ++s)
      if (plan.shape.is_wan(s)) plan.wan_gbps += 2 * hop(s).gbps * layout_.pipelines;
    set_up(plan);
    return replan_training(std::move(plan), costs_);
  }

 private:
  node_index node_of_stage(std::uint32_t pipeline, std::uint32_t stage) const {
    return layout_.at(pipeline, stage).node;
  }
  std::uint32_t datacenter_of(std::uint32_t stage) const { return layout_.datacenter_of(stage); }

  stage_costs costs_of(std::uint32_t stage) const {
    const auto& gpu = c_.gpu_of(node_of_stage(0, stage));
    auto k = planners::costs_of_stage(job_, planners::device_of(job_, gpu), stage, layout_.stages,
                                      batches_.rows);
    if (job_.slots) k.activation_bytes = slot_bytes;
    return k;
  }

  link hop(std::uint32_t stage) const {
    return planners::wan_between(c_, datacenter_of(stage), datacenter_of(stage + 1),
                                 job_.pipeline.connections);
  }

  wan_share inside() const {
    wan_share w;
    w.pairs = 0;
    return w;
  }
  /// A pipeline's own node pair; whether it is shared in time, the schedule decides.
  wan_share across(std::uint32_t pipeline, std::uint32_t from, std::uint32_t to) const {
    wan_share w;
    w.first_pair = pipeline;
    w.connections = planners::connections_between(c_, datacenter_of(from), datacenter_of(to),
                                                  job_.pipeline.connections);
    return w;
  }

  void set_up(training_plan& plan) const {
    const auto stages = layout_.stages;
    for (std::uint32_t p = 0; p < layout_.pipelines; ++p)
      for (std::uint32_t s = 0; s < stages; ++s) {
        stage_setup x;
        x.name = {lease_, p, s};
        x.device = layout_.at(p, s).device;
        x.backend = job_.train->device;
        x.model = job_.model;
        x.how = *job_.train;
        x.how.costs.clear();  // the stage's own are in x.costs
        x.first_layer = layout_.first_layer[s];
        x.layers = layout_.layers[s];
        x.stages = stages;
        x.pipelines = layout_.pipelines;
        x.microbatches = batches_.microbatches;
        x.rows = batches_.rows;
        for (std::uint32_t other = 0; other < stages; ++other)
          x.neighbours.push_back(node_address(c_, node_of_stage(p, other)));
        for (std::uint32_t peer = 0; peer < layout_.pipelines; ++peer)
          x.peers.push_back(node_address(c_, node_of_stage(peer, s)));
        x.forward = plan.shape.is_wan(s) ? across(p, s, s + 1) : inside();
        x.backward = s > 0 && plan.shape.is_wan(s - 1) ? across(p, s, s - 1) : inside();
        x.tied =
            datacenter_of(0) != datacenter_of(stages - 1) ? across(p, 0, stages - 1) : inside();
        x.costs = costs_[s];
        x.trace = !x.how.timeline.empty();
        plan.stages.push_back(std::move(x));
      }
  }

  const cluster& c_;
  lease_id lease_;
  const train_order& order_;
  job_spec job_;  // with what the device is
  pipeline_layout layout_;
  planners::batch_split batches_;
  std::vector<stage_costs> costs_;
};

/// The slowest stage sets the pace: a plan for it is right for all that wait for it.
planners::pipeline_costs slowest(const training_plan& plan,
                                 const std::vector<stage_costs>& by_stage) {
  auto c = plan.shape.costs;
  c.forward = c.recompute = c.backward = 0;
  double way_s = 0;
  for (const auto& k : by_stage) {
    c.forward = std::max(c.forward, k.forward_s);
    c.recompute = std::max(c.recompute, k.recompute_s);
    c.backward = std::max(c.backward, k.backward_s);
    way_s = std::max(way_s, k.wan_s);
  }
  // A tensor's way is the latency, and its bytes over the shares of all that take turns.
  const double shares = plan.schedule.shares_wan ? plan.shape.pipelines_per_cell() : 1;
  if (way_s > c.wan_latency) c.wan = (way_s - c.wan_latency) * shares;
  return c;
}

/// What each stage takes, if all of it is known.
std::vector<planners::step_costs> by_stage(const std::vector<stage_costs>& all) {
  std::vector<planners::step_costs> out;
  for (const auto& k : all) out.push_back({k.forward_s, k.recompute_s, k.backward_s});
  const bool known =
      std::ranges::all_of(out, [](const auto& k) { return k.forward > 0 && k.backward > 0; });
  return known ? out : std::vector<planners::step_costs>{};
}

void share_wan(training_plan& plan) {
  const auto cell = plan.shape.pipelines_per_cell();
  for (auto& s : plan.stages)
    for (auto* share : {&s.forward, &s.backward}) {
      if (share->pairs == 0) continue;
      const auto first = s.name.pipeline / cell * cell;
      share->in_turn = plan.schedule.shares_wan;
      share->first_pair = plan.schedule.shares_wan ? first : s.name.pipeline;
      share->pairs = plan.schedule.shares_wan ? std::min(cell, plan.shape.pipelines - first) : 1;
    }
}

}  // namespace

expected<training_plan> plan_training(const cluster& c, lease_id lease, const train_order& order,
                                      const std::string& backend) {
  return maker{c, lease, order, backend}.make();
}

expected<training_plan> replan_training(training_plan plan, const std::vector<stage_costs>& costs) {
  plan.shape.costs = slowest(plan, costs);
  plan.shape.by_stage = by_stage(costs);
  auto made = planners::schedule_pipeline(plan.shape, plan.schedule_name);
  if (!made) return tl::unexpected<reason>(made.error());
  plan.schedule = std::move(*made);
  plan.lower_bound_s =
      plan.schedule_name == "best" ? planners::pipeline_lower_bound(plan.shape) : 0;
  auto orders = planners::stage_orders(plan.schedule);
  for (std::size_t i = 0; i < plan.stages.size(); ++i) plan.stages[i].order = std::move(orders[i]);
  share_wan(plan);
  return plan;
}

double drift_of(const training_plan& plan, const std::vector<stage_costs>& measured) {
  const auto now = slowest(plan, measured);
  const auto& then = plan.shape.costs;
  double drift = 0;
  const auto compare = [&](double a, double b) {
    if (a > 0 && b > 0) drift = std::max(drift, std::abs(a / b - 1));
  };
  compare(now.forward, then.forward);
  compare(now.backward, then.backward);
  compare(now.wan, then.wan);
  return drift;
}

}  // namespace troupe::actors
