#include "actors/training/planning/training_plan.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "actors/training/planning/plan_builder.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/statistics.hpp"
#include "planners/cost/plan_time.hpp"

namespace troupe::actors {

namespace {

/// The times of a group's stages and hops.
struct group_times {
  std::span<const planners::stage_times> stages;
  std::span<const double> wan, lan;  // by stage
};
group_times times_of(const training_plan& plan, std::size_t group) {
  const auto stages = plan.stages_each();
  const auto& t = plan.times;
  return {std::span{t.stages}.subspan(std::size_t{plan.first_of(group)} * stages,
                                      std::size_t{plan.shapes[group].pipelines} * stages),
          std::span{t.wan}.subspan(group * stages, stages),
          std::span{t.lan}.subspan(group * stages, stages)};
}

/// The times of the slowest stage and the slowest hop: all others wait for these.
planners::pipeline_costs slowest(const training_plan& plan, std::size_t group) {
  const auto t = times_of(plan, group);
  planners::pipeline_costs c{0, 0, 0, 0, 0, plan.times.wan_latency};
  for (const auto& k : t.stages) {
    c.forward = std::max(c.forward, k.forward);
    c.recompute = std::max(c.recompute, k.recompute);
    c.backward = std::max(c.backward, k.backward);
  }
  for (const auto s : t.lan) c.lan = std::max(c.lan, s);
  for (const auto s : t.wan) c.wan = std::max(c.wan, s);
  return c;
}

/// Holds for any schedules, whichever pipelines and hops are slow: each stage counts with the times
/// of its fastest pipeline in a group, and the WAN with its fastest hop. The slowest group counts.
double lower_bound(const training_plan& plan) {
  double bound = 0;
  for (std::size_t g = 0; g < plan.shapes.size(); ++g) {
    auto shape = plan.shapes[g];
    shape.by_stage = planners::fastest_peers(shape, plan.times, plan.first_of(g));
    shape.tail = {};
    shape.costs = slowest(plan, g);
    const auto wan = times_of(plan, g).wan;
    for (std::uint32_t s = 0; s < wan.size(); ++s)
      if (shape.is_wan(s)) shape.costs.wan = std::min(shape.costs.wan, wan[s]);
    bound = std::max(bound, planners::pipeline_lower_bound(shape));
  }
  return bound;
}

/// As slowest(), with the median stage: better if most stages are alike and few are slow.
planners::pipeline_costs with_median_stage(const training_plan& plan, std::size_t group) {
  auto c = slowest(plan, group);
  const auto median_of = [&](double planners::stage_times::*what) {
    std::vector<double> all;
    for (const auto& k : times_of(plan, group).stages) all.push_back(k.*what);
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
void adopt(training_plan& plan, std::vector<planners::pipeline_schedule> schedules) {
  plan.schedules = std::move(schedules);
  std::size_t i = 0;
  for (const auto& schedule : plan.schedules) {
    const auto cell = schedule.shape.pipelines_per_cell();
    const auto first_of_group = plan.stages[i].name.pipeline;
    for (auto& order : planners::stage_orders(schedule)) {
      auto& s = plan.stages[i++];
      s.order = std::move(order);
      for (auto* path : {&s.forward, &s.backward}) {
        if (path->pairs == 0) continue;
        const auto first = (s.name.pipeline - first_of_group) / cell * cell;
        path->serialized = schedule.shares_wan;
        path->first_pair = schedule.shares_wan ? first_of_group + first : s.name.pipeline;
        path->pairs = schedule.shares_wan ? std::min(cell, schedule.shape.pipelines - first) : 1;
      }
    }
  }
  TROUPE_INVARIANT(i == plan.stages.size(), "each stage has an order");
}

/// The k-th guess at shapes for measured times, of replan_training.
planners::pipeline_shape guess(const training_plan& plan, std::size_t group, int k) {
  auto shape = plan.shapes[group];
  const auto first = plan.first_of(group);
  shape.tail = planners::longest_tails(shape, plan.times, first);
  shape.costs = k == 2 ? with_median_stage(plan, group) : slowest(plan, group);
  shape.by_stage.clear();
  if (k == 0) shape.by_stage = planners::slowest_peers(shape, plan.times, first);
  shape.cell = planners::cell_of(shape.costs, shape.pipelines);
  return shape;
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
                 alone_s = plan.stages_each() == 1 ? norms_s : 0;
    replace(t.stages[i].update, measured[i].update_s + measured[i].gradients_s + alone_s);
    replace(t.stages[i].norms, norms_s - alone_s);
    replace(t.stages[i].gradients, measured[i].gradients_s);
  }
  // A transfer takes the latency and its bytes over the bandwidth of all pairs of its DP-cell. A
  // stage measures the slower of its two hops, so the smaller value of a hop's two ends is the
  // hop's.
  const auto stages = plan.stages_each();
  for (std::size_t g = 0; g < plan.shapes.size(); ++g) {
    const auto& shape = plan.shapes[g];
    const double pairs = plan.schedules[g].shares_wan ? shape.pipelines_per_cell() : 1;
    const auto first = std::size_t{plan.first_of(g)} * stages,
               end = std::min(measured.size(), first + std::size_t{shape.pipelines} * stages);
    for (std::uint32_t hop = 0; hop + 1 < stages; ++hop) {
      if (!shape.is_wan(hop)) continue;
      double end_s[2] = {0, 0};
      for (auto i = first + hop; i + 1 < end; i += stages)
        for (std::size_t side = 0; side < 2; ++side)
          end_s[side] = std::max(end_s[side], measured[i + side].wan_s);
      const double s = std::min(end_s[0], end_s[1]);
      if (s > t.wan_latency) t.wan[g * stages + hop] = (s - t.wan_latency) * pairs;
    }
  }
  return t;
}

expected<training_plan> plan_training(const cluster& c, lease_id lease, const train_order& order,
                                      const std::string& backend) {
  auto job = planners::with_device(order.spec, backend);
  auto timed = planners::time_plan(c, job, order.how, order.parts);
  if (!timed) return refuse(timed.error());
  auto plan = plan_without_orders(c, lease, std::move(job), std::move(*timed));
  if (!plan) return plan;
  auto made = planners::schedules_of(plan->shapes, plan->schedule_name);
  if (!made) return refuse(made.error());
  adopt(*plan, std::move(*made));
  plan->iteration_s = planners::simulated_iteration_s(plan->schedules, plan->times);
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
  result.kept_s = plan.iteration_s = planners::simulated_iteration_s(plan.schedules, plan.times);
  for (int k = 0; k < 3; ++k) {
    std::vector<planners::pipeline_shape> shapes;
    for (std::size_t g = 0; g < plan.shapes.size(); ++g) shapes.push_back(guess(plan, g, k));
    auto made = planners::schedules_of(shapes, plan.schedule_name);
    if (!made) continue;
    const double s = planners::simulated_iteration_s(*made, plan.times);
    if (s >= min_gain * plan.iteration_s) continue;
    plan.shapes = std::move(shapes);
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
        return fmt::format("a {} of stage {} of pipeline {} takes", what, i % plan.stages_each(),
                           i / plan.stages_each());
      };
    };
    compare(now.stages[i].forward, planned.stages[i].forward, text("forward"));
    compare(now.stages[i].backward, planned.stages[i].backward, text("backward"));
  }
  for (std::size_t i = 0; i < planned.wan.size(); ++i)
    compare(now.wan[i], planned.wan[i], [&plan, i] {
      const auto s = i % plan.stages_each(), group = i / plan.stages_each();
      return fmt::format("a transfer over the WAN between stages {} and {}{} takes", s, s + 1,
                         plan.shapes.size() > 1 ? fmt::format(" of group {}", group) : "");
    });
  return largest;
}

// The fastest of the tensors met no queue: what it took beyond the link's own time is the hosts'.
double handling_s(const training_plan& plan, std::uint32_t stage, const stage_costs& measured) {
  double link_s = 0;  // of the slower hop, as measured.wan_s
  const auto stages = plan.stages_each();
  for (std::size_t g = 0; g < plan.shapes.size(); ++g) {
    const auto first = std::size_t{plan.first_of(g)} * stages;
    const auto consider = [&](std::uint32_t hop, const wan_path& path) {
      if (!plan.shapes[g].is_wan(hop)) return;
      const auto& l = plan.hops[g * stages + hop];
      const double bytes = static_cast<double>(measured.activation_bytes);
      const auto flows = static_cast<std::uint32_t>(
          std::max<std::size_t>(1, plan.stages[first + stage].devices.size()));
      link_s = std::max(
          link_s, bytes / l.bytes_s(bytes, flows) / std::max(1U, path.pairs) + l.latency_us * 1e-6);
    };
    if (stage > 0) consider(stage - 1, plan.stages[first + stage - 1].forward);
    if (stage + 1 < stages) consider(stage, plan.stages[first + stage + 1].backward);
  }
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
  known.shapes = plan.shapes;
  known.schedules.resize(known.shapes.size());
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
