#include "actors/training/planning/training_plan.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/base/statistics.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "runtime/host/transport.hpp"

namespace troupe::actors {

namespace {

/// Micro-batches of an iteration whose tasks stages report even if no timeline is written.
constexpr std::uint32_t max_traced = 512;

/// Makes a training plan without orders from a timed plan.
class plan_builder {
 public:
  plan_builder(const cluster& c, lease_id lease, job_spec job, planners::timed_plan timed)
      : c_{c}, lease_{lease}, job_{std::move(job)}, timed_{std::move(timed)} {
    if (job_.slots)
      for (auto& k : timed_.costs) k.activation_bytes = slot_bytes;
  }

  // Hops are the same in all pipelines: their stages share datacenters. Both directions of a hop
  // count for the WAN's utilization.
  expected<training_plan> build() {
    if (auto ok = tensors_fit(); !ok) return refuse(ok.error());
    training_plan plan;
    plan.shape = timed_.shape;
    plan.times = timed_.times;
    plan.layout = timed_.layout;
    plan.schedule_name = planners::schedule_name(job_);
    for (std::uint32_t s = 0; s + 1 < layout().stages; ++s) {
      plan.hops.push_back(plan.shape.is_wan(s) ? hop(s) : link{});
      if (plan.shape.is_wan(s)) plan.wan_gbps += 2 * hop(s).gbps * layout().pipelines;
      if (plan.shape.is_wan(s)) add_bare(plan.bare_wan, datacenter_of(s), datacenter_of(s + 1));
    }
    for (std::uint32_t p = 0; p < layout().pipelines; ++p)
      for (std::uint32_t s = 0; s < layout().stages; ++s)
        plan.stages.push_back(set_up(plan.shape, p, s));
    return plan;
  }

 private:
  const planners::pipeline_layout& layout() const { return timed_.layout; }
  node_index node_of(std::uint32_t pipeline, std::uint32_t stage) const {
    return layout().at(pipeline, stage).node;
  }
  std::uint32_t datacenter_of(std::uint32_t stage) const { return layout().datacenter_of(stage); }
  const stage_costs& costs(std::uint32_t pipeline, std::uint32_t stage) const {
    return timed_.costs[std::size_t{pipeline} * layout().stages + stage];
  }

  /// Checks the limit for tensors. Gradients of GPUs are not checked: only the stages find out
  /// whether their devices all-reduce directly, and fail themselves if a tensor is too large.
  expected<void> tensors_fit() const {
    if (is_simulated(job_.train->device)) return {};
    for (std::uint32_t s = 0; s < layout().stages; ++s) {
      const auto& k = costs(0, s);
      if (s + 1 < layout().stages)
        if (auto ok = fits("a micro-batch's activations", s, k.activation_bytes, "fewer sequences");
            !ok)
          return ok;
      if (layout().pipelines > 1 && !sums_on_devices(*job_.train, job_.train->device))
        if (auto ok = fits("a pipeline's chunk of the gradients", s,
                           k.gradient_bytes / layout().pipelines, "more pipelines or more stages");
            !ok)
          return ok;
      if (layout().stages > 1)
        if (auto ok = fits("the tied embedding's gradients", s, k.tied_bytes, "one stage"); !ok)
          return ok;
    }
    return {};
  }
  expected<void> fits(const char* what, std::uint32_t stage, std::uint64_t bytes,
                      const char* remedy) const {
    if (bytes <= runtime::largest_tensor_bytes) return {};
    return refuse(reason::kind::infeasible,
                  "{} of stage {} have {} bytes, but a tensor may have at most {}: give the job {}",
                  what, stage, bytes, runtime::largest_tensor_bytes, remedy);
  }

  /// Names the two datacenters unless their link is emulated.
  void add_bare(std::string& names, std::uint32_t a, std::uint32_t b) const {
    if (const auto* w = wan_between(c_, a, b); w && w->emulate) return;
    const auto both = fmt::format("{} and {}", c_.datacenters[a].name, c_.datacenters[b].name);
    if (names.find(both) == std::string::npos) names += (names.empty() ? "" : ", ") + both;
  }

  link hop(std::uint32_t stage) const {
    return planners::link_between(c_, datacenter_of(stage), datacenter_of(stage + 1),
                                  job_.pipeline.connections);
  }
  /// WAN transfer time of a micro-batch's tensor to the next stage; 0: inside a datacenter.
  double transfer_s(std::uint32_t stage) const {
    if (datacenter_of(stage) == datacenter_of(stage + 1)) return 0;
    const auto l = hop(stage);
    const auto bytes = static_cast<double>(costs(0, stage).activation_bytes);
    return bytes / l.bytes_s(bytes, layout().flows(stage, stage + 1)) + l.latency_us * 1e-6;
  }
  wan_path inside() const {
    wan_path w;
    w.pairs = 0;
    return w;
  }
  /// Over the pipeline's own node pair; adopt() replaces this if the schedule shares the link.
  wan_path across(std::uint32_t pipeline, std::uint32_t from, std::uint32_t to) const {
    wan_path w;
    w.first_pair = pipeline;
    w.connections = planners::connections_between(c_, datacenter_of(from), datacenter_of(to),
                                                  job_.pipeline.connections);
    return w;
  }

  /// The setup without an order, which adopt() adds. It carries all that the stage's node needs,
  /// since nodes do not have the plan: addresses of neighbours and peers, costs, paths and model.
  stage_setup set_up(const planners::pipeline_shape& shape, std::uint32_t p,
                     std::uint32_t s) const {
    const auto last = layout().stages - 1;
    stage_setup x;
    x.name = {lease_, p, s};
    x.devices = layout().at(p, s).devices;
    x.backend = job_.train->device;
    x.model = job_.model;
    x.how = *job_.train;
    x.how.costs.clear();  // the stage's own are in x.costs
    x.first_sublayer = layout().parts[s].first;
    x.sublayers = layout().parts[s].count;
    x.stages = layout().stages;
    x.pipelines = layout().pipelines;
    x.microbatches = timed_.batch.microbatches;
    x.rows = timed_.batch.rows;
    for (std::uint32_t other = 0; other <= last; ++other)
      x.neighbours.push_back(node_address(node_of(p, other)));
    for (std::uint32_t peer = 0; peer < layout().pipelines; ++peer)
      x.peers.push_back(node_address(node_of(peer, s)));
    x.forward = shape.is_wan(s) ? across(p, s, s + 1) : inside();
    x.backward = s > 0 && shape.is_wan(s - 1) ? across(p, s, s - 1) : inside();
    x.tied = datacenter_of(0) != datacenter_of(last) ? across(p, 0, last) : inside();
    x.costs = costs(p, s);
    x.costs.wan_s =
        std::max({x.costs.wan_s, s > 0 ? transfer_s(s - 1) : 0, s < last ? transfer_s(s) : 0});
    const bool lends = job_.pipeline.bubbles.has_value();
    x.trace = !x.how.timeline.empty() ||
              ((lends || !is_simulated(x.backend)) && x.microbatches <= max_traced);
    x.emulate_speed = c_.nodes[node_of(p, s)].emulate_speed;
    x.recompute_layers = job_.pipeline.recompute_layers;
    return x;
  }

  const cluster& c_;
  lease_id lease_;
  job_spec job_;  // with its device kind
  planners::timed_plan timed_;
};

/// The times of the slowest stage and the slowest hop: all others wait for these.
planners::pipeline_costs slowest(const planners::measured_times& t) {
  planners::pipeline_costs c{0, 0, 0, 0, 0, t.wan_latency};
  for (const auto& k : t.stages) {
    c.forward = std::max(c.forward, k.forward);
    c.recompute = std::max(c.recompute, k.recompute);
    c.backward = std::max(c.backward, k.backward);
  }
  for (const auto s : t.lan) c.lan = std::max(c.lan, s);
  for (const auto s : t.wan) c.wan = std::max(c.wan, s);
  return c;
}

/// Holds for any schedule, whichever pipelines and hops are slow: each stage counts with the times
/// of its fastest pipeline, and the WAN with its fastest hop.
double lower_bound(const training_plan& plan) {
  auto shape = plan.shape;
  shape.by_stage = planners::fastest_peers(plan.shape, plan.times);
  shape.tail = {};
  shape.costs = slowest(plan.times);
  for (std::uint32_t s = 0; s < plan.times.wan.size(); ++s)
    if (shape.is_wan(s)) shape.costs.wan = std::min(shape.costs.wan, plan.times.wan[s]);
  return planners::pipeline_lower_bound(shape);
}

/// As slowest(), with the median stage: better if most stages are alike and few are slow.
planners::pipeline_costs with_median_stage(const planners::measured_times& t) {
  auto c = slowest(t);
  const auto median_of = [&](double planners::stage_times::*what) {
    std::vector<double> all;
    for (const auto& k : t.stages) all.push_back(k.*what);
    return statistics::median(std::move(all));
  };
  c.forward = median_of(&planners::stage_times::forward);
  c.recompute = median_of(&planners::stage_times::recompute);
  c.backward = median_of(&planners::stage_times::backward);
  return c;
}

/// Gives each stage its order, and its tensors their paths. Under a schedule that shares the WAN
/// (Atlas) the pipelines of a DP-cell send one tensor after another over the node pairs of all of
/// them; otherwise each pipeline has its own pair.
void adopt(training_plan& plan, planners::pipeline_schedule schedule) {
  plan.schedule = std::move(schedule);
  auto orders = planners::stage_orders(plan.schedule);
  const auto cell = plan.schedule.shape.pipelines_per_cell();
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    auto& s = plan.stages[i];
    s.order = std::move(orders[i]);
    for (auto* path : {&s.forward, &s.backward}) {
      if (path->pairs == 0) continue;
      const auto first = s.name.pipeline / cell * cell;
      path->serialized = plan.schedule.shares_wan;
      path->first_pair = plan.schedule.shares_wan ? first : s.name.pipeline;
      path->pairs = plan.schedule.shares_wan ? std::min(cell, plan.shape.pipelines - first) : 1;
    }
  }
}

}  // namespace

// A stage measures 0 for what it has not done yet: the planned time stays.
planners::measured_times with_measured(const training_plan& plan,
                                       const std::vector<stage_costs>& measured) {
  auto t = plan.times;
  const auto replace = [](double& known, double now) {
    if (now > 0) known = now;
  };
  for (std::size_t i = 0; i < measured.size() && i < t.stages.size(); ++i) {
    replace(t.stages[i].forward, measured[i].forward_s);
    replace(t.stages[i].recompute, measured[i].recompute_s);
    replace(t.stages[i].backward, measured[i].backward_s);
    const double norms_s = measured[i].norms_s.value_or(0),
                 alone_s = plan.shape.stages == 1 ? norms_s : 0;
    replace(t.stages[i].update, measured[i].update_s + measured[i].gradients_s + alone_s);
    replace(t.stages[i].norms, norms_s - alone_s);
    replace(t.stages[i].gradients, measured[i].gradients_s);
  }
  // A transfer takes the latency and its bytes over the bandwidth of all pairs of its DP-cell. A
  // stage measures the slower of its two hops, so the smaller value of a hop's two ends is the
  // hop's.
  const double pairs = plan.schedule.shares_wan ? plan.shape.pipelines_per_cell() : 1;
  const auto stages = plan.shape.stages;
  for (std::uint32_t hop = 0; hop + 1 < stages; ++hop) {
    if (!plan.shape.is_wan(hop)) continue;
    double end_s[2] = {0, 0};
    for (std::size_t i = hop; i + 1 < measured.size(); i += stages)
      for (std::size_t end = 0; end < 2; ++end)
        end_s[end] = std::max(end_s[end], measured[i + end].wan_s);
    const double s = std::min(end_s[0], end_s[1]);
    if (s > t.wan_latency) t.wan[hop] = (s - t.wan_latency) * pairs;
  }
  return t;
}

expected<training_plan> plan_training(const cluster& c, lease_id lease, const train_order& order,
                                      const std::string& backend) {
  auto job = planners::with_device(order.spec, backend);
  auto timed = planners::time_plan(c, job, order.how, order.parts);
  if (!timed) return refuse(timed.error());
  auto plan = plan_builder{c, lease, std::move(job), std::move(*timed)}.build();
  if (!plan) return plan;
  auto made = planners::schedule_pipeline(plan->shape, plan->schedule_name);
  if (!made) return refuse(made.error());
  adopt(*plan, std::move(*made));
  plan->iteration_s = planners::simulated_iteration_s(plan->schedule, plan->times);
  if (plan->schedule_name == "best") plan->lower_bound_s = lower_bound(*plan);
  return plan;
}

// Three guesses, since schedules are made for stages that are alike: all as slow as the slowest,
// with each stage's own times or without, and all like the median one. The simulation with the
// measured times chooses. A new order costs an exchange between the windows, hence the minimum
// gain.
replanned replan_training(training_plan plan, const std::vector<stage_costs>& measured) {
  constexpr double min_gain = 0.995;  // of the iteration time: else the orders stay
  plan.times = with_measured(plan, measured);
  replanned result;
  result.kept_s = plan.iteration_s = planners::simulated_iteration_s(plan.schedule, plan.times);
  std::vector<planners::pipeline_shape> shapes(3, plan.shape);
  for (auto& shape : shapes) shape.tail = planners::longest_tails(plan.shape, plan.times);
  shapes[0].costs = shapes[1].costs = slowest(plan.times);
  shapes[2].costs = with_median_stage(plan.times);
  shapes[0].by_stage = planners::slowest_peers(plan.shape, plan.times);
  shapes[1].by_stage = shapes[2].by_stage = {};
  for (auto& shape : shapes) {
    shape.cell = planners::cell_of(shape.costs, shape.pipelines);
    auto made = planners::schedule_pipeline(shape, plan.schedule_name);
    if (!made) continue;
    const double s = planners::simulated_iteration_s(*made, plan.times);
    if (s >= min_gain * plan.iteration_s) continue;
    plan.shape = shape;
    plan.iteration_s = s;
    adopt(plan, std::move(*made));
    result.changed = true;
  }
  if (plan.schedule_name == "best") plan.lower_bound_s = lower_bound(plan);
  result.plan = std::move(plan);
  return result;
}

// Updates and copies of gradients are not compared: no order of steps changes with them.
drift drift_of(const training_plan& plan, const std::vector<stage_costs>& measured) {
  const auto now = with_measured(plan, measured);
  const auto& planned = plan.times;
  drift largest;
  const auto compare = [&](double is, double was, auto&& text) {
    const double relative = is > 0 && was > 0 ? std::abs(is / was - 1) : 0;
    if (relative > largest.relative)
      largest = {relative, fmt::format("{} {:.3g} times", text(), is / was)};
  };
  for (std::size_t i = 0; i < planned.stages.size(); ++i) {
    const auto text = [&](const char* what) {
      return [&plan, i, what] {
        return fmt::format("a {} of stage {} of pipeline {} takes", what, i % plan.shape.stages,
                           i / plan.shape.stages);
      };
    };
    compare(now.stages[i].forward, planned.stages[i].forward, text("forward"));
    compare(now.stages[i].backward, planned.stages[i].backward, text("backward"));
  }
  for (std::uint32_t s = 0; s < planned.wan.size(); ++s)
    compare(now.wan[s], planned.wan[s], [s] {
      return fmt::format("a transfer over the WAN between stages {} and {} takes", s, s + 1);
    });
  return largest;
}

// The fastest of the tensors met no queue: what it took beyond the link's own time is the hosts'.
double handling_s(const training_plan& plan, std::uint32_t stage, const stage_costs& measured) {
  double link_s = 0;  // of the slower hop, as measured.wan_s
  const auto consider = [&](std::uint32_t hop, const wan_path& path) {
    if (!plan.shape.is_wan(hop)) return;
    const auto& l = plan.hops[hop];
    const double bytes = static_cast<double>(measured.activation_bytes);
    const auto flows =
        static_cast<std::uint32_t>(std::max<std::size_t>(1, plan.stages[stage].devices.size()));
    link_s = std::max(
        link_s, bytes / l.bytes_s(bytes, flows) / std::max(1U, path.pairs) + l.latency_us * 1e-6);
  };
  if (stage > 0) consider(stage - 1, plan.stages[stage - 1].forward);
  if (stage + 1 < plan.shape.stages) consider(stage, plan.stages[stage + 1].backward);
  return std::max(0.0, measured.wan_s - link_s);
}

// The schedule's numbers are planned ones until every stage has measured a forward and a backward;
// a bound of a mixture would be neither.
double lower_bound_s(const training_plan& plan, std::vector<stage_costs> measured) {
  if (plan.schedule_name != "best" || is_simulated(plan.stages.front().backend))
    return plan.lower_bound_s;
  for (auto& k : measured) {
    if (k.forward_s <= 0 || k.backward_s <= 0) return 0;
    k.wan_s = 0;  // the planned link time counts: the measured one includes waiting
  }
  training_plan known;
  known.shape = plan.shape;
  known.times = plan.times;
  known.times = with_measured(known, measured);
  // Where nothing is emulated a transfer takes what the network takes, which may be next to
  // nothing: the link's own time in the cluster file is no part of such a run.
  if (!plan.bare_wan.empty()) {
    known.times.wan.assign(known.times.wan.size(), 0);
    known.times.wan_latency = 0;
  }
  return lower_bound(known);
}

}  // namespace troupe::actors
