#include "planners/schedule/named_schedule.hpp"

#include <algorithm>
#include <numeric>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "planners/schedule/evaluate_schedule.hpp"
#include "planners/schedule/rule_schedules.hpp"
#include "planners/schedule/schedule_search.hpp"

namespace troupe::planners {

namespace {

/// One forward, one backward (Megatron-LM), after one forward for each later stage; or all
/// forwards, then all backwards (GPipe). Both in the order of the micro-batches, as in every other
/// schedule, so that sums of gradients are equal.
std::vector<std::vector<std::int32_t>> fixed_order(const pipeline_shape& s, bool gpipe) {
  std::vector<std::vector<std::int32_t>> result;
  const auto m = static_cast<std::int32_t>(s.microbatches);
  auto held = m;  // more than the stage before has are never there
  for (std::uint32_t stage = 0; stage < s.stages; ++stage) {
    if (!s.held.empty()) held = std::min(held, static_cast<std::int32_t>(s.held[stage]));
    const auto warm_up = gpipe ? m : std::min(held, static_cast<std::int32_t>(s.stages - stage));
    std::vector<std::int32_t> order;
    for (std::int32_t i = 0; i < warm_up; ++i) order.push_back(i);
    for (std::int32_t b = 0; b < m; ++b) {
      order.push_back(-1 - b);
      if (b + warm_up < m) order.push_back(b + warm_up);
    }
    result.push_back(std::move(order));
  }
  return result;
}

/// Whether the shape is one that the rules can play.
expected<void> check(const pipeline_shape& s) {
  const auto& c = s.costs;
  if (s.stages == 0 || s.pipelines == 0 || s.microbatches == 0)
    return refuse(reason::kind::invalid,
                  "need at least one stage, one pipeline and one micro-batch");
  if (!(c.forward > 0 && c.backward > 0 && c.recompute >= 0 && c.lan >= 0 && c.wan >= 0 &&
        c.wan_latency >= 0))
    return refuse(reason::kind::invalid,
                  "forward and backward costs must be positive; other costs must not be negative");
  if (!s.by_stage.empty() && s.by_stage.size() != s.stages)
    return refuse(reason::kind::invalid, "by_stage must have {} entries", s.stages);
  for (const auto& k : s.by_stage)
    if (!(k.forward > 0 && k.backward > 0 && k.recompute >= 0))
      return refuse(reason::kind::invalid,
                    "forward and backward costs must be positive in every stage");
  if (!s.tail.empty() && s.tail.size() != s.stages)
    return refuse(reason::kind::invalid, "tail must have {} entries", s.stages);
  for (const auto t : s.tail)
    if (!(t >= 0)) return refuse(reason::kind::invalid, "tail costs must not be negative");
  const auto& split = s.stages_of_datacenter;
  if (!split.empty() && std::accumulate(split.begin(), split.end(), std::uint64_t{0}) != s.stages)
    return refuse(reason::kind::invalid, "stages_of_datacenter must sum to {}", s.stages);
  if (!s.held.empty() && s.held.size() != s.stages)
    return refuse(reason::kind::invalid, "held must have {} entries", s.stages);
  if (std::ranges::count(s.held, 0U) > 0)
    return refuse(reason::kind::infeasible, "every stage must hold a micro-batch");
  if (s.max_in_flight && *s.max_in_flight == 0)
    return refuse(reason::kind::infeasible, "max_in_flight must be at least 1");
  return {};
}

std::uint32_t peak_in_flight(const std::vector<stage_task>& tasks) {
  std::uint32_t now = 0, peak = 0;
  for (const auto& t : tasks) {
    if (t.what == stage_task::kind::forward) peak = std::max(peak, ++now);
    if (t.what == stage_task::kind::backward) --now;
  }
  return peak;
}

/// Fails if a fixed order (gpipe, megatron) exceeds the memory limit, which it does not know.
expected<void> keeps_limit(const pipeline_shape& s, const pipeline_schedule& made,
                           std::string_view name) {
  const auto too_many = [&](std::uint32_t keeps, std::uint32_t allowed) {
    return refuse(reason::kind::infeasible,
                  "{} keeps {} micro-batches in flight in a stage; {} are allowed", name, keeps,
                  allowed);
  };
  if (s.max_in_flight && made.max_in_flight > *s.max_in_flight)
    return too_many(made.max_in_flight, *s.max_in_flight);
  for (std::size_t i = 0; i < made.tasks.size() && !s.held.empty(); ++i)
    if (const auto keeps = peak_in_flight(made.tasks[i]); keeps > s.held[i % s.stages])
      return too_many(keeps, s.held[i % s.stages]);
  return {};
}

struct named_rules {
  std::string_view name;
  pipeline_rules rules;
};

/// The rules by name; docs/planners/pipelines.md has a table of them.
std::vector<named_rules> all_rules(const pipeline_shape& s) {
  return {{"gpipe", {false, false, false, fixed_order(s, true)}},
          {"megatron", {false, false, false, fixed_order(s, false)}},
          {"varuna", {false, false, false, {}}},
          {"varuna-forward-first", {true, false, false, {}}},
          {"atlas", {true, true, false, {}}},
          {"atlas-least-progress", {true, true, true, {}}}};
}

/// The length of an iteration that executes these orders with the shape's costs
/// (evaluate_schedule.hpp).
double simulated_s(const pipeline_schedule& made) {
  const auto& s = made.shape;
  measured_times t;
  for (std::uint32_t p = 0; p < s.pipelines; ++p)
    for (std::uint32_t i = 0; i < s.stages; ++i) {
      const auto k = s.at(i);
      t.stages.push_back({k.forward, k.recompute, k.backward, 0, s.after(i)});
    }
  t.wan.assign(s.stages, s.costs.wan);
  t.lan.assign(s.stages, s.costs.lan);
  t.wan_latency = s.costs.wan_latency;
  return simulated_iteration_s(made, t);
}

// No rule is the best for all shapes: over five datacenters the paper's strict order is worse than
// Varuna, for short pipelines sharing the WAN wins (docs/papers/atlas.md). So `best` is a
// portfolio: every rule by name and the combinations that the names leave out (recompute first on a
// shared WAN), then local search from the best that shares the WAN in time and from the best that
// does not, since the search cannot change that. The winner has the shortest executed time within
// the memory limit, among equals the shortest planned time, then the first; so by execution it is
// never longer than a named schedule. Varuna's rules keep any memory limit, so there always is one.
expected<pipeline_schedule> best_of(const pipeline_shape& s) {
  constexpr std::uint64_t steps = 1'000'000;  // tasks timed; more of them found no better orders
  struct candidate {
    pipeline_schedule made;
    double makespan_s = 0;
  };
  std::optional<candidate> best[2];
  const auto consider = [&](pipeline_schedule made) {
    auto& of_kind = best[made.shares_wan ? 1 : 0];
    const double makespan_s = simulated_s(made);
    if (of_kind &&
        std::pair{makespan_s, made.length} >= std::pair{of_kind->makespan_s, of_kind->made.length})
      return;
    of_kind = candidate{std::move(made), makespan_s};
  };
  auto candidates = all_rules(s);
  candidates.push_back({"recompute first, shared", {false, true, false, {}}});
  candidates.push_back({"recompute first, shared, least progress", {false, true, true, {}}});
  for (const auto& c : candidates) {
    if (s.holds_one_at_end && c.name == "gpipe") continue;
    auto made = simulate_rules(s, c.rules);
    if (!keeps_limit(s, made, c.name)) continue;
    made.made_by = c.name;
    consider(std::move(made));
  }
  TROUPE_INVARIANT(best[0], "Varuna's rules keep any limit of memory");
  for (const auto& b : best)
    if (b) consider(local_search(b->made, steps));
  const bool shares = best[1] && best[1]->makespan_s < best[0]->makespan_s;
  return std::move(best[shares ? 1 : 0]->made);
}

}  // namespace

expected<pipeline_schedule> schedule_pipeline(const pipeline_shape& shape, std::string_view name) {
  if (auto ok = check(shape); !ok) return refuse(ok.error());
  if (name == "best") return best_of(shape);
  for (const auto& candidate : all_rules(shape)) {
    if (candidate.name != name) continue;
    auto made = simulate_rules(shape, candidate.rules);
    made.made_by = name;
    if (auto ok = keeps_limit(shape, made, name); !ok) return refuse(ok.error());
    return made;
  }
  return refuse(reason::kind::unknown, "unknown schedule '{}'", name);
}

}  // namespace troupe::planners
