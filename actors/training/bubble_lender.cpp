#include "actors/training/bubble_lender.hpp"

#include <algorithm>
#include <cmath>

#include "messages/time.hpp"
#include "messages/units.hpp"
#include "planners/bubbletea/prefill_groups.hpp"

namespace troupe::actors {

namespace {

constexpr std::uint32_t longest_prompt = 8192, shortest_prompt = 64;

/// Of a slot job, whose served model has no shape that counts: its prefills take what the job says.
planners::served_layer layer_of_slots(const bubble_lending& how) {
  planners::served_layer l;
  l.layers = std::max(1u, how.model.shape.layers);
  return l;
}

/// The groups for the longest prompts that fit the memory that is lent.
expected<std::vector<planners::prefill_group>> groups_of(const cluster& c, const job_spec& job,
                                                         const training_plan& plan,
                                                         std::uint32_t& most_tokens) {
  const auto& how = *job.pipeline.bubbles;
  const auto layer = job.slots ? expected<planners::served_layer>{layer_of_slots(how)}
                               : planners::served_layer_of(how.model.shape);
  if (!layer) return refuse(layer.error());
  planners::prefill_group_options o;
  if (how.depth > 0) o.depth = how.depth;
  // Weights and caches are counted in half precision; the CPU has them in single precision.
  const double size = plan.stages.front().backend == "cpu" ? 2 : 1;
  o.guest_bytes = how.memory_gb * bytes_per_gb / size;
  const auto positions = how.model.shape.sequence;
  const auto most = positions > 0 ? std::min(positions, longest_prompt) : longest_prompt;
  for (auto tokens = most;; tokens /= 2) {
    o.tokens = o.rows = tokens;
    auto groups = planners::prefill_groups(c, plan.layout, *layer, o);
    most_tokens = tokens;
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
    p.half_tokens = g.rate.half_tokens;
  }
  return p;
}

}  // namespace

namespace {

/// What a stage's device does in an iteration, as in stage_timetable::busy.
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

/// The shortest wait before each of these in any iteration: those after a barrier differ.
std::vector<double> shortest_waits(const planners::timetable& t, std::size_t stage) {
  std::vector<double> waits;
  // The barrier is not before all stages have ended.
  double before_s = busy_in(t, stage, t.iterations - 1).back().end_s - t.length;
  for (std::uint32_t i = 0; i < t.iterations; ++i) {
    const auto busy = busy_in(t, stage, i);
    waits.resize(busy.size(), never);
    for (std::size_t k = 0; k < busy.size(); ++k) {
      waits[k] = std::min(waits[k], std::max(0.0, busy[k].begin_s - before_s));
      before_s = busy[k].end_s;
    }
  }
  return waits;
}

/// Busy so early that no wait is longer than the shortest. The first step keeps its begin, from
/// which the iteration counts; instead of it the update ends later.
void shorten_waits(std::vector<busy_time>& busy, double iteration_s,
                   const std::vector<double>& shortest) {
  for (std::size_t k = 1; k < busy.size(); ++k)
    busy[k].begin_s = std::min(busy[k].begin_s, busy[k - 1].end_s + shortest[k]);
  const double first_s = busy.front().begin_s + iteration_s;
  busy.back().end_s = std::max(busy.back().end_s, first_s - shortest.front());
}

}  // namespace

iteration_timetable timetable_of(const training_plan& plan, const planners::measured_times& times) {
  // By then an iteration begins as long after the one before as all later ones do. With a barrier
  // after each they are all as the first one.
  const bool alone = plan.stages.front().how.replan_every == 1;
  const std::uint32_t simulated = alone ? 1 : 5, shown = alone ? 0 : 3;
  iteration_timetable out;
  const auto t = planners::simulated_timetable(plan.schedule, times, simulated);
  if (!t) return out;
  const auto begin_s = [&](std::uint32_t iteration) {
    double first_s = never;
    for (std::size_t i = 0; i < t->steps.size(); i += t->stages)
      first_s = std::min(first_s, t->steps[i][iteration * t->steps_of_iteration(i)].begin);
    return first_s;
  };
  const double zero_s = begin_s(shown);
  out.iteration_s = alone ? t->length : begin_s(shown + 1) - zero_s;
  for (std::size_t i = 0; i < t->steps.size(); ++i) {
    auto& busy = out.busy.emplace_back(busy_in(*t, i, shown));
    for (auto& b : busy) b.begin_s -= zero_s, b.end_s -= zero_s;
    shorten_waits(busy, out.iteration_s, shortest_waits(*t, i));
  }
  return out;
}

expected<bubble_lender> bubble_lender::of(const cluster& c, const job_spec& job,
                                          const training_plan& plan, std::uint64_t trainer) {
  std::uint32_t most_tokens = 0;
  const auto groups = groups_of(c, job, plan, most_tokens);
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
    offer.most_tokens = most_tokens;
  }
  out.update(plan, plan.times);
  return out;
}

void bubble_lender::add_guests(training_plan& plan) const {
  for (const auto& [gateway, offer] : offers_)
    for (const auto& g : offer.groups)
      for (const auto& guest : g.guests) {
        const auto i = guest.stage.pipeline * plan.shape.stages + guest.stage.stage;
        plan.stages[i].guest = guest_setup{offer.how, guest, times_of(i)};
      }
}

bool bubble_lender::update(const training_plan& plan, const planners::measured_times& times) {
  // Signals correct less than that within an iteration.
  constexpr double relative = 0.005;
  auto now = timetable_of(plan, times);
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
    offer.stages.clear();
    for (const auto& g : offer.groups)
      for (const auto& guest : g.guests)
        offer.stages.push_back(
            {guest.stage,
             times_.busy[guest.stage.pipeline * plan.shape.stages + guest.stage.stage]});
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
