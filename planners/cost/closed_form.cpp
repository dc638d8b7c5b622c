#include "planners/cost/closed_form.hpp"

#include <algorithm>

#include "messages/base/time.hpp"
#include "planners/schedule/trips.hpp"

namespace troupe::planners {

namespace {

/// w: micro-batches that a stage has in flight under 1F1B.
std::uint32_t window_of(const pipeline_shape& shape, std::uint32_t stage) {
  const auto window = shape.stages - stage;
  return shape.held.empty() ? window : std::min(window, shape.held[stage]);
}

/// Each link's use by activations and their gradients in an iteration, s, of all groups.
std::vector<double> used_links_s(const timed_plan& t, const std::vector<group_part>& groups) {
  std::vector<double> used(t.times.links, 0.0);
  for (const auto& g : groups)
    for (auto i = g.begin; i < g.end && !t.times.routes.empty(); ++i) {
      const auto& w = t.times.routes[i];
      const double m = g.shape.microbatches;
      used[w.forward.link] += m * w.forward.link_s();
      used[w.backward.link] += m * w.backward.link_s();
    }
  return used;
}

/// The largest use of a link that the group uses, s, or the time of its slowest flow, which need
/// not fill its link.
double busiest_link_s(const timed_plan& t, const group_part& g, const std::vector<double>& used) {
  const double m = g.shape.microbatches;
  double longest = 0;
  for (auto i = g.begin; i < g.end && !t.times.routes.empty(); ++i) {
    const auto& w = t.times.routes[i];
    longest = std::max({longest, m * w.forward.alone_s, m * w.backward.alone_s,
                        used[w.forward.link], used[w.backward.link]});
  }
  return longest;
}

/// Term (4), cards, less S, by stage (docs/planners/plan_search.md): (m - w) a + (m - 1) g on
/// cards, or links inside a node, that only one stage of one pipeline uses; the largest of all
/// pipelines. When a stage has done its first backward, at most w of its activations have been
/// sent; the others and all further gradients still have to pass its card, and the last of them
/// then returns to the first stage.
std::vector<double> beyond_cards_s(const timed_plan& t, const group_part& g) {
  const auto stages = g.shape.stages, m = g.shape.microbatches;
  std::vector<double> out(stages, 0.0);
  if (t.times.routes.empty()) return out;
  const auto sends_of = [&](const pipeline_shape& shape, std::size_t i, bool forward) {
    const auto s = static_cast<std::uint32_t>(i % stages);
    return forward ? s + 1 < stages && !shape.is_wan(s) : s > 0 && !shape.is_wan(s - 1);
  };
  const auto sends = [&](std::size_t i, bool forward) { return sends_of(g.shape, i, forward); };
  std::vector<std::uint32_t> users(t.times.links, 0);
  for (const auto& other : parts_of_groups(t))
    for (auto i = other.begin; i < other.end; ++i) {
      const auto& w = t.times.routes[i];
      const bool forward = sends_of(other.shape, i, true);
      if (forward) ++users[w.forward.link];
      if (sends_of(other.shape, i, false) && !(forward && w.backward.link == w.forward.link))
        ++users[w.backward.link];
    }
  for (auto i = g.begin; i < g.end; ++i) {
    const auto s = static_cast<std::uint32_t>(i % stages);
    const auto& w = t.times.routes[i];
    const bool forward = sends(i, true) && users[w.forward.link] == 1;
    const bool backward = sends(i, false) && users[w.backward.link] == 1;
    double both_s = 0;
    if (backward) both_s = (m - 1.0) * w.backward.link_s();
    if (backward && forward && w.backward.link == w.forward.link)
      both_s += (m - std::min(m, window_of(g.shape, s))) * w.forward.link_s();
    if (forward) both_s = std::max(both_s, (m - 1.0) * w.forward.link_s());
    out[s] = std::max(out[s], both_s);
  }
  return out;
}

/// Term (5), first micro-batch, by stage: how much later than alone it comes back, as its gradients
/// share cards with the activations that the stages behind send at the same time. Certain only if
/// no stage in front takes longer for a micro-batch than Y / w of each stage behind it, so that
/// those activations are there; otherwise all are 0.
std::vector<double> delays_s(const timed_plan& t, const group_part& g) {
  const auto& shape = g.shape;
  const auto stages = shape.stages;
  std::vector<double> out(stages, 0.0);
  if (t.times.routes.empty() || std::ranges::any_of(t.times.wan, [](double s) { return s > 0; }))
    return out;
  double through = 0, max_load = never;
  for (auto s = stages - 1; s > 0; --s) {
    const auto k = shape.at(s);
    through += k.forward + k.backward + (s + 1 < stages ? 2 * t.times.lan[g.hop + s] : 0);
    out[s - 1] = out[s];
    const bool waits = s + 1 < stages && stages - s < shape.microbatches;
    double delay = never, load = shape.at(s - 1).forward;
    for (auto i = g.begin + s; i < g.end; i += stages) {
      const auto& w = t.times.routes[i];
      const bool shared = waits && w.forward.link == w.backward.link && w.forward.share == 1 &&
                          w.backward.share == 1;
      delay = std::min(
          delay, shared ? delay_on_card_s(w.backward.alone_s, w.forward.alone_s, k.forward) : 0);
      load = std::max(load, t.times.routes[i - 1].forward.alone_s);
    }
    if (waits) max_load = std::min(max_load, through / (stages - s));
    if (load > max_load) return std::vector<double>(stages, 0.0);
    out[s - 1] += delay;
  }
  return out;
}

/// An activation or its gradient over the hop after a stage, on an idle link.
double send_s(const timed_plan& t, const group_part& g, std::uint32_t s) {
  return g.shape.is_wan(s) ? t.times.wan[g.hop + s] + t.times.wan_latency : t.times.lan[g.hop + s];
}

/// The group's iteration before its sums: the end of its last backward in the first stage.
double steps_of_group_s(const timed_plan& t, const group_part& g, double v, double busiest_s,
                        bool lower_bound) {
  const auto& shape = g.shape;
  const double m = shape.microbatches;
  const auto way_s = [&](std::uint32_t s) {
    return (shape.at(s).forward + shape.at(s).backward) / v;
  };
  double behind = 0;  // a micro-batch's path to the last stage and back
  for (std::uint32_t s = 1; s < shape.stages; ++s) behind += way_s(s) + 2 * send_s(t, g, s - 1);
  double before = 0, longest = v * busiest_s;
  const auto delays = lower_bound ? delays_s(t, g) : std::vector<double>(shape.stages, 0.0);
  if (lower_bound)
    longest = std::max(longest, way_s(0) + behind + std::ranges::max(beyond_cards_s(t, g)));
  for (std::uint32_t s = 0; s < shape.stages; ++s) {
    const auto k = shape.at(s);
    // Before the first gradient arrives, 1F1B does one forward for each stage from this one on.
    const auto window = window_of(shape, s);
    const double warm_up = std::min<double>(m, window) * k.forward / v;
    const double idle = std::max(0.0, k.forward / v + behind + delays[s] - warm_up);
    const double hop = shape.is_wan(s) ? v * t.times.wan[g.hop + s] : 0;
    longest = std::max(
        longest, before + std::max(m * step_s(k), m * hop) + std::max(0.0, idle - k.recompute / v));
    const auto rounds = rounds_of(shape.microbatches, window);
    if (v == 1)
      longest =
          std::max(longest, before + rounds.full * (way_s(s) + behind) + rounds.rest * k.forward);
    if (lower_bound) {
      const double next = s + 1 < shape.stages ? behind - 2 * send_s(t, g, s) : 0,
                   trip = way_s(s) + behind;
      const double trips = trips_s(shape.microbatches, window, trip, next, step_s(k));
      if (trips > 0) longest = std::max(longest, before + trip + delays[s] + trips);
    }
    if (s + 1 == shape.stages) break;
    before += way_s(s) + 2 * send_s(t, g, s);
    behind -= way_s(s + 1) + 2 * send_s(t, g, s);
  }
  return longest;
}

}  // namespace

// The iteration of 1F1B without a schedule (docs/planners/plan_search.md, "Lower bounds for known
// stages"). Simulating a schedule costs O(tasks * log(tasks)), too much for the thousands of plans
// that a search evaluates; this is O(pipelines * stages). The usual formula, one pass plus (m - 1)
// times the slowest stage, ignores that a stage holds only w micro-batches and so waits for round
// trips. Here every stage gives chains of events that happen one after the other in any 1F1B order:
// (1) its first forward arrives, it does all of its work and waits for the first gradient
// meanwhile, and the last gradient returns to stage 0; (2) a stage begins a micro-batch only when
// the one w before it has returned, so the rounds follow each other; with `lower_bound` (3) to (5),
// too. The longest chain counts, and no less than the busiest shared link; then the sums and
// updates that backwards do not hide. With `v` parts of the model per stage, filling and draining
// take 1/v as long, and tensors are sent v times as often (Narayanan et al., section 2.2); there
// the rounds are not bounded.
double closed_form_s(const timed_plan& t, const job_spec& job, double v, bool lower_bound) {
  const auto groups = parts_of_groups(t);
  const auto used = used_links_s(t, groups);
  std::vector<double> last_backward_s;
  for (const auto& g : groups) {
    const auto& shape = g.shape;
    const double longest = steps_of_group_s(t, g, v, busiest_link_s(t, g, used), lower_bound);
    // A stage's last backward ends before those of earlier stages begin.
    double backwards = 0;
    for (std::uint32_t s = 0; s < shape.stages; ++s) {
      last_backward_s.push_back(longest - backwards);
      backwards += shape.at(s).backward / v + (s + 1 < shape.stages ? send_s(t, g, s) : 0);
    }
  }
  return end_of_sums_s(t, job, last_backward_s, lower_bound);
}

}  // namespace troupe::planners
