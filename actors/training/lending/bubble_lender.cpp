#include "actors/training/lending/bubble_lender.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/served_bytes.hpp"
#include "planners/bubbletea/prefill_groups.hpp"

namespace troupe::actors {

namespace {

constexpr std::uint32_t shortest_prompt = cache_page_positions;

/// The layer of a slot job, whose served model has no shape that counts: its prefills take the time
/// that the job gives.
planners::served_layer layer_of_slots(const bubble_lending& how) {
  planners::served_layer l;
  l.layers = std::max(1u, how.model.shape.layers);
  return l;
}

/// The groups for the longest prompts that fit the memory that is lent. A prompt needs room for its
/// cache and its activations beside the weights, so that the longest is halved until a group fits,
/// but not below a page of cache.
expected<std::vector<planners::prefill_group>> groups_of(const cluster& c, const job_spec& job,
                                                         const training_plan& plan,
                                                         std::uint32_t& max_tokens) {
  const auto& how = *job.pipeline.bubbles;
  const auto layer = job.slots ? expected<planners::served_layer>{layer_of_slots(how)}
                               : planners::served_layer_of(how.model.shape);
  if (!layer) return refuse(layer.error());
  planners::prefill_group_options o;
  if (how.depth > 0) o.depth = how.depth;
  // Groups are formed for weights and caches in half precision.
  constexpr double half = 2;
  o.guest_bytes = how.memory_gb * bytes_per_gb * half /
                  facts_of_device(plan.stages.front().backend).bytes_per_value;
  const auto positions = how.model.shape.sequence;
  const auto max = positions > 0 ? std::min(positions, longest_lent_prompt) : longest_lent_prompt;
  for (auto tokens = max;; tokens /= 2) {
    o.tokens = o.rows = tokens;
    auto groups = planners::prefill_groups(c, plan.layout, *layer, o);
    max_tokens = tokens;
    if (groups || tokens / 2 < shortest_prompt) return groups;
  }
}

guest_place place_of(const planners::prefill_guest& g, const training_plan& plan,
                     const job_spec& job, std::uint32_t layers) {
  const auto& setup = plan.stages[g.device];
  guest_place p;
  p.stage = setup.name;
  p.node = setup.neighbours[setup.name.stage];
  p.first_layer = g.first_layer;
  p.layers = g.layers;
  if (job.slots) {
    p.token_s =
        job.slots->prefill_per_1k.value_or(slot_costs::default_prefill_per_1k) / 1000 / layers;
  } else {
    p.token_s = g.rate.token_s;
    p.pair_s = g.rate.pair_s;
    p.half_tokens = facts_of_device(setup.backend).gains_by_rows ? g.rate.half_tokens : 0;
  }
  return p;
}

}  // namespace

namespace {

/// The times of an iteration in which a stage's device computes, as in stage_timetable::busy.
std::vector<busy_time> busy_in(const planners::timetable& t, std::size_t stage,
                               std::uint32_t iteration) {
  std::vector<busy_time> busy;
  const auto each = t.steps_of_iteration(stage);
  for (std::size_t k = iteration * each; k < (iteration + 1) * each; ++k)
    busy.push_back({t.steps[stage][k].begin, t.steps[stage][k].end});
  const auto& tail = t.tails[stage][iteration];
  busy.push_back({tail.begin, tail.on_devices ? tail.update : tail.exchange});
  busy.push_back({tail.update, tail.end});
  return busy;
}

/// Enough iterations that later ones are like each other; all of a window if its timetable is not
/// long.
std::uint32_t iterations_shown(const training_plan& plan, std::uint64_t window) {
  constexpr std::uint64_t min = 6, max_times = 20'000;
  TROUPE_INVARIANT(!plan.stages.empty(), "a plan of a training has a stage");
  const auto each = plan.stages.size() * (plan.stages.front().order.size() + 2);
  return static_cast<std::uint32_t>(std::min(window, std::max(min, max_times / each)));
}

/// From a stage's node to the trainer's, by the cluster file.
double report_s(const cluster& c, address stage, address trainer) {
  const auto a = c.nodes[node_of(stage)].datacenter, b = c.nodes[node_of(trainer)].datacenter;
  const auto* wan = wan_between(c, a, b);
  return wan ? wan->rtt_ms * 1e-3 / 2 : 0;
}

}  // namespace

// Played by the simulation of the plan's schedule, which the training's iterations repeat: the
// first ones fill the pipeline, later ones are alike, and the last one shown is that before a
// barrier. Times count from the earliest first step of a first stage. At a barrier each stage waits
// until the slowest report has reached the trainer and its answer is back.
window_timetable timetable_of(const training_plan& plan, const planners::measured_times& times,
                              std::uint64_t window, const std::vector<double>& report_s) {
  window_timetable out;
  const auto shown = iterations_shown(plan, window);
  const auto t = planners::simulated_timetable(plan.schedules, times, shown);
  if (!t) return out;
  const auto begin_s = [&](std::uint32_t iteration) {
    double first_s = never;
    for (std::size_t i = 0; i < t->steps.size(); i += t->stages)
      first_s = std::min(first_s, t->steps[i][iteration * t->steps_of_iteration(i)].begin);
    return first_s;
  };
  const double zero_s = begin_s(0);
  out.shown = shown;
  out.window = window;
  // The last one shown is that before a barrier.
  out.iteration_s = shown > 2   ? begin_s(shown - 2) - begin_s(shown - 3)
                    : shown > 1 ? begin_s(1) - zero_s
                                : t->length - zero_s;
  TROUPE_INVARIANT(shown >= 1 && shown <= window,
                   "an iteration at least is shown, and none beyond the window");
  const double not_shown_s = static_cast<double>(window - shown) * out.iteration_s;
  double over_s = 0, answer_s = never;
  for (std::size_t i = 0; i < t->steps.size(); ++i) {
    auto& busy = out.busy.emplace_back();
    for (std::uint32_t k = 0; k < shown; ++k)
      std::ranges::copy(busy_in(*t, i, k), std::back_inserter(busy));
    for (auto& b : busy) b.begin_s -= zero_s, b.end_s -= zero_s;
    TROUPE_INVARIANT(!busy.empty(), "a stage is busy in each iteration");
    over_s = std::max(over_s, busy.back().end_s + not_shown_s + report_s[i]);
    if (i % t->stages == 0) answer_s = std::min(answer_s, report_s[i]);
  }
  out.window_s = over_s + answer_s;
  for (const auto& busy : out.busy)
    out.barrier_s.push_back(out.window_s + busy.front().begin_s -
                            (busy.back().end_s + not_shown_s));
  return out;
}

// One offer for each gateway: a group's guests are in one datacenter, so that its blocks cross no
// WAN.
expected<bubble_lender> bubble_lender::of(const cluster& c, const job_spec& job,
                                          const training_plan& plan, std::uint64_t trainer,
                                          address trainer_node, std::uint64_t window,
                                          std::uint64_t first) {
  std::uint32_t max_tokens = 0;
  const auto groups = groups_of(c, job, plan, max_tokens);
  if (!groups) return refuse(groups.error());
  const auto& how = *job.pipeline.bubbles;
  bubble_lender out;
  for (const auto& g : *groups) {
    guest_group group;
    std::uint32_t layers = 0;
    for (const auto& guest : g.guests) layers += guest.layers;
    for (const auto& guest : g.guests) group.guests.push_back(place_of(guest, plan, job, layers));
    group.hop_token_s = g.hop_token_s;
    group.hop_latency_s = g.hop_latency_s;
    auto& offer = out.offers_[gateway_of(c, group.guests.front().node)];
    offer.groups.push_back(std::move(group));
  }
  for (auto& [gateway, offer] : out.offers_) {
    offer.lease = plan.stages.front().name.lease;
    offer.trainer = trainer;
    offer.how = how;
    offer.how.op_ms =
        how.longest_op_ms(!facts_of_device(plan.stages.front().backend).interrupts_guest);
    offer.max_tokens = max_tokens;
    offer.first_iteration = first;
  }
  out.window_ = window;
  for (const auto& s : plan.stages)
    out.report_s_.push_back(report_s(c, s.neighbours[s.name.stage], trainer_node));
  out.update(plan, plan.times);
  return out;
}

void bubble_lender::add_guests(training_plan& plan) const {
  for (const auto& [gateway, offer] : offers_)
    for (const auto& g : offer.groups)
      for (const auto& guest : g.guests) {
        const auto i = guest.stage.pipeline * plan.stages_each() + guest.stage.stage;
        plan.stages[i].guest = guest_setup{offer.how, guest, times_of(i)};
      }
}

// A new timetable costs a message to every gateway and stage, so that one which differs less than
// signals correct anyway is not sent.
bool bubble_lender::update(const training_plan& plan, const planners::measured_times& times) {
  // Signals correct less than that within an iteration.
  constexpr double relative = 0.005;
  auto now = timetable_of(plan, times, window_, report_s_);
  if (now.iteration_s <= 0) return false;
  const auto moved = [&](double is, double was) {
    return std::abs(is - was) > relative * now.iteration_s;
  };
  bool same = now.busy.size() == times_.busy.size() && !moved(now.iteration_s, times_.iteration_s);
  for (std::size_t i = 0; same && i < now.busy.size(); ++i)
    same = std::ranges::equal(now.busy[i], times_.busy[i], [&](const auto& a, const auto& b) {
      return !moved(a.begin_s, b.begin_s) && !moved(a.end_s, b.end_s);
    });
  if (same) return false;
  times_ = std::move(now);
  for (auto& [gateway, offer] : offers_) {
    ++offer.sequence;
    offer.iteration_s = times_.iteration_s;
    offer.shown = times_.shown;
    offer.window = times_.window;
    offer.window_s = times_.window_s;
    offer.stages.clear();
    for (const auto& g : offer.groups)
      for (const auto& guest : g.guests)
        offer.stages.push_back(
            {guest.stage,
             times_.busy[guest.stage.pipeline * plan.stages_each() + guest.stage.stage]});
  }
  changed_ = true;
  return true;
}

void bubble_lender::send(const messenger& m, double heartbeat_s) {
  // A timer may fire a rounding error early.
  if (!changed_ && m.now_s() < sent_s_ + 0.999 * heartbeat_s) return;
  changed_ = false;
  sent_s_ = m.now_s();
  for (const auto& [gateway, offer] : offers_) m.send(gateway, offer);
}

// An offer without groups ends the lending, with a larger number so that it replaces the last one.
void bubble_lender::withdraw() {
  for (auto& [gateway, offer] : offers_) {
    if (offer.groups.empty()) return;
    ++offer.sequence;
    offer.groups.clear();
    offer.stages.clear();
  }
  changed_ = true;
}

}  // namespace troupe::actors
