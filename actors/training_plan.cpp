#include "actors/training_plan.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "planners/model_shape.hpp"
#include "planners/pipeline_layout.hpp"

namespace troupe::actors {

namespace {

using planners::pipeline_layout;
using planners::pipeline_shape;

constexpr double half = 2, whole = 4;  // bytes a value: on GPUs, on CPUs
constexpr double cpu_flops_s = 100e9;  // to begin with; measured times replace it

bool simulated(const std::string& backend) {
  return backend == "sim";
}

struct microbatching {
  std::uint32_t count = 1, rows = 1;
};

/// How a pipeline's share of the batch is cut.
expected<microbatching> cut(const job_spec& job, std::uint32_t pipelines, std::uint32_t stages) {
  const auto wished =
      job.pipeline.microbatches > 0 ? job.pipeline.microbatches : job.microbatches.value_or(0);
  if (job.slots) return microbatching{std::max(1U, wished), 1};
  if (job.global_batch % pipelines != 0)
    return refuse(reason::kind::invalid,
                  fmt::format("a batch of {} does not divide among {} pipelines", job.global_batch,
                              pipelines));
  const auto share = job.global_batch / pipelines;
  auto count = wished > 0 ? wished : std::min(share, 4 * stages);
  if (wished == 0)
    while (share % count != 0) --count;
  if (share % count != 0)
    return refuse(
        reason::kind::invalid,
        fmt::format("{} sequences a pipeline do not divide into {} micro-batches", share, count));
  return microbatching{count, share / count};
}

const wan_link* link_between(const cluster& c, std::uint32_t a, std::uint32_t b) {
  for (const auto& w : c.wan)
    if ((w.a == a && w.b == b) || (w.a == b && w.b == a)) return &w;
  return nullptr;
}

/// What a pair of nodes reaches over a hop with so many connections, and how many that takes.
struct hop_rate {
  double gbps = 0;
  std::uint32_t connections = 1;
};

hop_rate rate_of(const wan_link* w, std::uint32_t wished) {
  if (!w) return {1, std::max(1U, wished)};
  if (w->connection_gbps <= 0) return {w->node_gbps, std::max(1U, wished)};
  const auto enough =
      static_cast<std::uint32_t>(std::max(1.0, std::ceil(w->node_gbps / w->connection_gbps)));
  const auto n = wished > 0 ? wished : enough;
  return {std::min(w->node_gbps, n * w->connection_gbps), n};
}

class maker {
 public:
  maker(const cluster& c, lease_id lease, const train_order& order, const std::string& backend)
      : c_{c}, lease_{lease}, order_{order}, job_{order.spec} {
    how_ = job_.train.value_or(training{});
    backend_ = job_.slots ? "sim" : how_.device.empty() ? backend : how_.device;
  }

  expected<training_plan> make() {
    auto layout = planners::lay_out_pipelines(c_, order_.parts, job_, order_.how.pipeline_parallel,
                                              order_.how.data_parallel);
    if (!layout) return tl::unexpected<reason>(layout.error());
    layout_ = std::move(*layout);
    auto cut_up = cut(job_, layout_.pipelines, layout_.stages);
    if (!cut_up) return tl::unexpected<reason>(cut_up.error());
    batches_ = *cut_up;
    for (std::uint32_t s = 0; s < layout_.stages; ++s) costs_.push_back(costs_of(s));
    find_rates();
    training_plan plan;
    plan.shape = shape();
    plan.schedule_name = how_.schedule.empty() ? "best" : how_.schedule;
    plan.wan_gbps = wan_gbps_;
    plan.wan_latency_s = latency_s_;
    set_up(plan);
    return replan_training(std::move(plan), costs_);
  }

 private:
  node_index node_of_stage(std::uint32_t pipeline, std::uint32_t stage) const {
    return layout_.at(pipeline, stage).node;
  }
  std::uint32_t datacenter_of(std::uint32_t stage) const { return layout_.datacenter_of(stage); }

  stage_costs costs_of(std::uint32_t stage) const {
    if (stage < how_.costs.size()) return how_.costs[stage];
    stage_costs k;
    if (job_.slots) {
      k.forward_s = job_.slots->forward;
      k.recompute_s = job_.slots->recompute;
      k.backward_s = job_.slots->backward;
      k.activation_bytes = slot_bytes;
      return k;
    }
    const auto model = planners::shape_of(job_.model);
    const double share = static_cast<double>(layout_.layers[stage]) / job_.model.layers;
    const auto& gpu = c_.gpu_of(node_of_stage(0, stage));
    const double peak = gpu.fp16_tflops > 0 ? gpu.fp16_tflops : gpu.fp32_tflops;
    const double flops_s = simulated(backend_) ? peak * 1e12 * gpu.efficiency : cpu_flops_s;
    const double value = simulated(backend_) ? half : whole;
    k.forward_s = k.recompute_s = model.forward_flops * batches_.rows * share / flops_s;
    k.backward_s = 2 * k.forward_s;
    k.activation_bytes =
        static_cast<std::uint64_t>(model.boundary_bytes / half * value * batches_.rows);
    k.gradient_bytes = static_cast<std::uint64_t>(model.parameters * share * value);
    return k;
  }

  /// The rate of every hop between datacentres. Transfers take turns by the slowest.
  void find_rates() {
    for (std::uint32_t s = 0; s + 1 < layout_.stages; ++s) {
      const auto a = datacenter_of(s), b = datacenter_of(s + 1);
      if (a == b) {
        rates_.push_back({0, 0});
        continue;
      }
      rates_.push_back(rate_of(link_between(c_, a, b), job_.pipeline.connections));
      slowest_gbps_ = std::min(slowest_gbps_, rates_.back().gbps);
      if (const auto* w = link_between(c_, a, b))
        latency_s_ = std::max(latency_s_, w->rtt_ms / 2e3);
      wan_gbps_ += 2 * rates_.back().gbps * layout_.pipelines;
    }
  }

  pipeline_shape shape() const {
    pipeline_shape s;
    s.stages = layout_.stages;
    s.pipelines = layout_.pipelines;
    s.microbatches = batches_.count;
    s.stages_of_datacenter = layout_.stages_of_datacenter;
    if (job_.pipeline.most_held > 0) s.most_held = job_.pipeline.most_held;
    const auto bytes = costs_.front().activation_bytes;
    s.costs.wan = wan_gbps_ > 0 ? static_cast<double>(bytes) * 8e-9 / slowest_gbps_ : 0;
    if (job_.slots) s.costs.lan = job_.slots->lan, s.costs.wan = job_.slots->wan;
    return s;
  }

  wan_share inside() const {
    wan_share w;
    w.pairs = 0;
    return w;
  }
  /// A pipeline's own node pair; whether it is shared in time, the schedule decides.
  wan_share across(std::uint32_t pipeline, std::uint32_t hop) const {
    wan_share w;
    w.first_pair = pipeline;
    w.connections = rates_[hop].connections;
    return w;
  }

  void set_up(training_plan& plan) const {
    const auto stages = layout_.stages;
    for (std::uint32_t p = 0; p < layout_.pipelines; ++p)
      for (std::uint32_t s = 0; s < stages; ++s) {
        stage_setup x;
        x.name = {lease_, p, s};
        x.device = layout_.at(p, s).device;
        x.backend = backend_;
        x.model = job_.model;
        x.how = how_;
        x.how.costs.clear();  // the stage's own are in x.costs
        x.first_layer = layout_.first_layer[s];
        x.layers = layout_.layers[s];
        x.stages = stages;
        x.pipelines = layout_.pipelines;
        x.microbatches = batches_.count;
        x.rows = batches_.rows;
        for (std::uint32_t other = 0; other < stages; ++other)
          x.neighbours.push_back(node_address(c_, node_of_stage(p, other)));
        for (std::uint32_t peer = 0; peer < layout_.pipelines; ++peer)
          x.peers.push_back(node_address(c_, node_of_stage(peer, s)));
        x.forward = plan.shape.is_wan(s) ? across(p, s) : inside();
        x.backward = s > 0 && plan.shape.is_wan(s - 1) ? across(p, s - 1) : inside();
        x.tied = inside();
        if (datacenter_of(0) != datacenter_of(stages - 1)) {
          x.tied.pairs = 1;
          x.tied.first_pair = p;
          x.tied.connections = std::max(x.forward.connections, x.backward.connections);
        }
        x.costs = costs_[s];
        x.trace = !how_.timeline.empty();
        plan.stages.push_back(std::move(x));
      }
  }

  const cluster& c_;
  lease_id lease_;
  const train_order& order_;
  const job_spec& job_;
  training how_;
  std::string backend_;
  pipeline_layout layout_;
  microbatching batches_;
  std::vector<stage_costs> costs_;
  std::vector<hop_rate> rates_;  // by hop; 0: inside a datacentre
  double slowest_gbps_ = 1e300, wan_gbps_ = 0, latency_s_ = 0;
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
  if (way_s > plan.wan_latency_s) c.wan = (way_s - plan.wan_latency_s) * shares;
  return c;
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
