#include "planners/schedule/schedule_search.hpp"

#include <algorithm>
#include <optional>

#include "messages/base/invariant.hpp"
#include "messages/base/random.hpp"
#include "messages/base/time.hpp"
#include "planners/schedule/event_queue.hpp"
#include "planners/schedule/rule_schedules.hpp"

namespace troupe::planners {

namespace {

// Local search over the orders of stages and hops (docs/planners/pipelines.md, "best"). Rules
// decide step by step and cannot see that waiting pays off later, and there are far too many orders
// to try them: this is job-shop scheduling, which is NP-hard. As there, only swaps of neighbours on
// the critical path, the chain of steps that determines the length, can shorten a schedule, so
// these are the moves. Plain descent ends in the first local optimum; threshold accepting also
// takes swaps that make the schedule a little longer, by a tolerance that falls to 0 with the
// tries. Invariant: `best` has the shortest orders seen that keep the memory limit, beginning with
// the given ones, so the result is never longer. Each try times the whole cell, O(tasks *
// log(tasks)). There are at most 2,000 tries, fewer by the limit of tasks, and none after the lower
// bound is reached. The random source is fixed: the result depends on the input alone.

constexpr std::uint32_t none = ~0u;
constexpr std::uint64_t max_tries = 2000;

/// The orders of one cell, and the earliest times that they allow. A step is a forward, or a
/// backward with its recompute, numbered by (pipeline, stage, micro-batch, direction).
class orders {
 public:
  orders(const pipeline_schedule& from, std::uint32_t pipelines)
      : shape_{&from.shape},
        shared_{from.shares_wan},
        hop_s_{from.shares_wan ? from.shape.costs.wan / pipelines : from.shape.costs.wan},
        order_(std::size_t{pipelines} * from.shape.stages),
        ranked_(std::size_t{from.shape.stages} * 2),
        steps_(order_.size() * from.shape.microbatches * 2),
        rank_of_(steps_.size()),
        served_(ranked_.size()),
        hops_(ranked_.size()),
        tiny_{1e-9 * (from.shape.costs.forward + from.shape.costs.backward)} {
    for (std::uint32_t s = 0; s < shape_->stages; ++s) wan_.push_back(shape_->is_wan(s));
    for (std::uint32_t stage = 0; stage < order_.size(); ++stage)
      for (const auto& t : from.tasks[stage])
        if (t.what != stage_task::kind::recompute)
          order_[stage].push_back(
              number(stage, t.microbatch, t.what == stage_task::kind::backward));
    for (const auto& t : from.transfers)
      if (shared_ && t.pipeline < pipelines)
        ranked_[t.stage * 2 + t.backward].push_back(
            number(t.pipeline * shape_->stages + t.stage + t.backward, t.microbatch, t.backward));
    for (const auto& list : ranked_)
      for (std::uint32_t i = 0; i < list.size(); ++i) rank_of_[list[i]] = i;
  }

  std::size_t size() const { return steps_.size(); }

  /// Computes the times of every step, and returns the length; infinite if the orders deadlock.
  /// Stages run ahead without events, as their steps only wait for inputs; only the shared hops,
  /// where transfers compete, need them in order of time.
  double time() {
    next_.assign(order_.size(), 0);
    for (auto& w : served_) w.clear();
    for (auto& x : steps_) x = {};
    for (std::uint32_t stage = 0; stage < order_.size(); ++stage)
      if (stage % shape_->stages == 0)
        for (std::uint32_t m = 0; m < shape_->microbatches; ++m)
          steps_[number(stage, m, false)].arrives = 0;
    for (auto& d : hops_) d = {};
    timed_ = 0;
    length_ = 0;
    last_ = none;
    awake_.clear();
    events_.clear();
    for (std::uint32_t stage = 0; stage < order_.size(); ++stage) awake_.push_back(stage);
    run_awake();
    events_.run(
        tiny_, [&](const event& e, double) { on_event(e); },
        [&](double now) {
          for (const auto list : asked_) choose(list, now);
          asked_.clear();
          run_awake();
        });
    return timed_ == steps_.size() ? length_ : never;
  }

  /// Adopts the order in which transfers went as their turns: the times stay the same, since no
  /// transfer waits for one that has not arrived.
  void settle() {
    for (std::size_t list = 0; list < served_.size(); ++list) {
      if (ranked_[list].empty()) continue;
      ranked_[list] = served_[list];
      for (std::uint32_t i = 0; i < ranked_[list].size(); ++i) rank_of_[ranked_[list][i]] = i;
    }
  }

  /// A swap of neighbors: in a stage's order or, if `hop`, in the turns of a hop and direction.
  struct swap {
    bool hop = false;
    std::uint32_t where = 0, second = 0;  // the list, and the index of the later one
  };

  /// The swaps that could shorten the schedule: walks the critical path back from the step that
  /// ends last, over what each step or transfer had to wait for. Precondition: time() was called.
  void find_swaps(std::vector<swap>& out) const {
    out.clear();
    auto step = last_;
    for (std::size_t guard = 0; step != none && guard < 4 * steps_.size(); ++guard) {
      const auto& x = steps_[step];
      const auto stage = stage_of(step);
      if (x.after_previous) {
        const auto before = order_[stage][x.place - 1];
        // A stage's forwards, and its backwards, stay in the order of the micro-batches.
        if (backward(before) != backward(step) && microbatch(before) != microbatch(step))
          out.push_back({false, stage, x.place});
        step = before;
        continue;
      }
      step = sender_of(step);
      // Go back over the transfers that it had to wait for.
      while (step != none && steps_[step].transfer_waited) {
        const auto turn = steps_[step].turn;
        const auto before = shared_ ? served_[list_of(step)][turn - 1] : last_sent(step);
        // It could have gone first only if it had arrived by then.
        if (stage_of(before) != stage_of(step) && steps_[step].end <= steps_[before].sent + tiny_)
          out.push_back({true, list_of(step), turn});
        step = before;
      }
    }
  }

  void apply(const swap& s) {
    auto& list = s.hop ? ranked_[s.where] : order_[s.where];
    std::swap(list[s.second - 1], list[s.second]);
    if (s.hop) std::swap(rank_of_[list[s.second - 1]], rank_of_[list[s.second]]);
  }

  /// The most micro-batches that a stage has in flight, by its order.
  std::uint32_t held(std::uint32_t stage) const {
    std::uint32_t now = 0, max = 0;
    for (const auto step : order_[stage]) {
      if (backward(step))
        --now;
      else
        max = std::max(max, ++now);
    }
    return max;
  }
  /// Rule 2 after this swap, and one micro-batch at the end if its memory is planned so.
  bool keeps_limit(const swap& s) const {
    if (s.hop) return true;
    const bool at_end = (s.where + 1) % shape_->stages == 0;
    if (shape_->holds_one_at_end && at_end && held(s.where) > 1) return false;
    const auto limit = shape_->flight_limit(static_cast<std::uint32_t>(s.where % shape_->stages));
    return !limit || held(s.where) <= *limit;
  }

  /// The times computed by the last time().
  pipeline_schedule schedule() const {
    pipeline_schedule out;
    out.tasks.resize(order_.size());
    for (std::uint32_t stage = 0; stage < order_.size(); ++stage) {
      const auto c = shape_->at(stage % shape_->stages);
      double free_at = 0;
      for (const auto step : order_[stage]) {
        const auto& x = steps_[step];
        const auto m = microbatch(step);
        auto& tasks = out.tasks[stage];
        if (backward(step) && shape_->recomputes(stage % shape_->stages)) {
          const double from = std::max(free_at, x.arrives - c.recompute);
          tasks.push_back({stage_task::kind::recompute, m, from, from + c.recompute});
        }
        const auto what = backward(step) ? stage_task::kind::backward : stage_task::kind::forward;
        tasks.push_back({what, m, x.begin, x.end});
        free_at = x.end;
        if (const auto hop = wan_hop(step); hop != none)
          out.transfers.push_back(
              {stage / shape_->stages, hop, m, backward(step), x.sent, x.sent + hop_s_});
      }
      out.max_in_flight = std::max(out.max_in_flight, held(stage));
    }
    out.length = length_;
    return out;
  }

 private:
  struct step_times {
    double arrives = never;  // when its input arrives from another stage
    double begin = 0, end = 0, sent = 0;
    std::uint32_t place = 0, turn = 0;
    bool after_previous = false;   // it waited for its stage, not for its input
    bool transfer_waited = false;  // its transfer waited for the one before
  };

  std::uint32_t number(std::uint32_t stage, std::uint32_t m, bool back) const {
    return (stage * shape_->microbatches + m) * 2 + (back ? 1 : 0);
  }
  static bool backward(std::uint32_t step) { return step % 2 == 1; }
  std::uint32_t microbatch(std::uint32_t step) const { return step / 2 % shape_->microbatches; }
  std::uint32_t stage_of(std::uint32_t step) const { return step / 2 / shape_->microbatches; }
  std::uint32_t list_of(std::uint32_t step) const {
    return wan_hop(step) * 2 + (backward(step) ? 1 : 0);
  }

  /// The hop of the step's tensor, if that is a WAN hop.
  std::uint32_t wan_hop(std::uint32_t step) const {
    const auto s = stage_of(step) % shape_->stages;
    if (backward(step)) return s > 0 && wan_[s - 1] ? s - 1 : none;
    return wan_[s] ? s : none;
  }
  std::uint32_t receiver_of(std::uint32_t step) const {
    const auto stage = stage_of(step), s = stage % shape_->stages;
    if (backward(step)) return s > 0 ? number(stage - 1, microbatch(step), true) : none;
    return s + 1 < shape_->stages ? number(stage + 1, microbatch(step), false) : step + 1;
  }
  std::uint32_t sender_of(std::uint32_t step) const {
    const auto stage = stage_of(step), s = stage % shape_->stages;
    if (!backward(step)) return s > 0 ? number(stage - 1, microbatch(step), false) : none;
    return s + 1 < shape_->stages ? number(stage + 1, microbatch(step), true) : step - 1;
  }

  /// Times the stage's next step, whose input has arrived: the recompute ends when the gradient
  /// arrives, or later if the stage was busy.
  void run(std::uint32_t stage, std::uint32_t step) {
    auto& x = steps_[step];
    const auto c = shape_->at(stage % shape_->stages);
    x.place = next_[stage]++;
    const double free_at = x.place > 0 ? steps_[order_[stage][x.place - 1]].end : 0;
    const bool recomputes = backward(step) && shape_->recomputes(stage % shape_->stages);
    const double ready = free_at + (recomputes ? c.recompute : 0);
    x.after_previous = x.place > 0 && ready >= x.arrives;
    x.begin = std::max(ready, x.arrives);
    x.end = x.begin + (backward(step) ? c.backward : c.forward);
    if (const double over = x.end + shape_->after(stage % shape_->stages); over > length_) {
      length_ = over;
      last_ = step;
    }
    send(step);
  }

  void send(std::uint32_t step) {
    const auto to = receiver_of(step);
    if (to == none) return;
    const auto hop = wan_hop(step);
    if (hop == none) {
      // The last stage's loss is local.
      const bool stays = stage_of(to) == stage_of(step);
      return deliver(to, steps_[step].end + (stays ? 0 : shape_->costs.lan));
    }
    if (!shared_) return cross(step, last_sent(step));  // in the order of its stage's steps
    events_.add({steps_[step].end, list_of(step), step});
  }

  /// The step of this stage and direction whose tensor was sent before this one's.
  std::uint32_t last_sent(std::uint32_t step) const {
    return microbatch(step) > 0 ? step - 2 : none;
  }

  /// The tensor crosses its WAN hop after that of `before`.
  void cross(std::uint32_t step, std::uint32_t before) {
    auto& x = steps_[step];
    const double free_at = before == none ? 0 : steps_[before].sent + hop_s_;
    x.transfer_waited = before != none && free_at > x.end + tiny_;
    x.sent = std::max(x.end, free_at);
    deliver(receiver_of(step), x.sent + hop_s_ + shape_->costs.wan_latency);
  }

  void deliver(std::uint32_t step, double at) {
    steps_[step].arrives = at;
    awake_.push_back(stage_of(step));
  }

  void run_awake() {
    while (!awake_.empty()) {
      const auto stage = awake_.back();
      awake_.pop_back();
      while (next_[stage] < order_[stage].size()) {
        const auto step = order_[stage][next_[stage]];
        if (steps_[step].arrives == never) break;
        run(stage, step);
        ++timed_;
      }
    }
  }

  /// A tensor arrives at a shared hop and direction, or that becomes idle.
  struct event {
    double at = 0;
    std::uint32_t list = 0, step = none;
    bool operator<(const event& o) const { return at > o.at; }
  };
  struct shared_hop {
    bool busy = false, asked = false;
    std::vector<std::uint32_t> waiting;  // their turns; few
  };

  void on_event(const event& m) {
    auto& d = hops_[m.list];
    if (m.step == none)
      d.busy = false;
    else
      d.waiting.push_back(rank_of_[m.step]);
    if (!d.asked) asked_.push_back(m.list);
    d.asked = true;
  }

  /// Begins the waiting transfer with the smallest turn, as a gateway does.
  void choose(std::uint32_t list, double now) {
    auto& d = hops_[list];
    d.asked = false;
    if (d.busy || d.waiting.empty()) return;
    const auto first = std::min_element(d.waiting.begin(), d.waiting.end());
    TROUPE_INVARIANT(*first < ranked_[list].size(), "a transfer that waits has a turn on its list");
    const auto step = ranked_[list][*first];
    *first = d.waiting.back();
    d.waiting.pop_back();
    d.busy = true;
    auto& served = served_[list];
    steps_[step].turn = static_cast<std::uint32_t>(served.size());
    cross(step, served.empty() ? none : served.back());
    served.push_back(step);
    events_.add({std::max(now, steps_[step].sent + hop_s_), list, none});
  }

  const pipeline_shape* shape_;
  bool shared_;
  double hop_s_;
  std::vector<bool> wan_;
  std::vector<std::vector<std::uint32_t>> order_;  // by pipeline * stages + stage
  std::vector<std::vector<std::uint32_t>>
      ranked_;  // by hop * 2 + direction: transfers in the order of their turns
  std::vector<step_times> steps_;
  std::vector<std::uint32_t> rank_of_;              // by step
  std::vector<std::vector<std::uint32_t>> served_;  // as ranks_, the order in the last time()
  std::vector<shared_hop> hops_;                    // likewise
  event_queue<event> events_;
  std::vector<std::uint32_t> next_, awake_, asked_;
  std::size_t timed_ = 0;
  double tiny_ = 0, length_ = 0;
  std::uint32_t last_ = none;
};

/// Threshold accepting for `pipelines` of one cell, at most until the length is `goal`. Nothing: no
/// shorter orders were found.
std::optional<pipeline_schedule> search(const pipeline_schedule& from, std::uint32_t pipelines,
                                        double goal, std::uint64_t steps) {
  orders now{from, pipelines};
  const auto tries = std::min<std::uint64_t>(steps / now.size(), max_tries);
  random_source random{1};
  const auto& costs = from.shape.costs;
  const double tiny = 1e-9 * (costs.forward + costs.backward);
  double length = now.time();
  if (length == never) return {};
  now.settle();
  auto best = now;
  double shortest = length;
  std::vector<orders::swap> swaps;
  now.find_swaps(swaps);
  for (std::uint64_t i = 0; i < tries && !swaps.empty() && shortest > goal + tiny; ++i) {
    const auto swap = swaps[random.below(swaps.size())];
    const double heat = 1 - static_cast<double>(i) / static_cast<double>(tries);
    const double allowed = length + costs.forward * heat * random.uniform();
    now.apply(swap);
    const double made = now.keeps_limit(swap) ? now.time() : never;
    if (made == never || made > allowed + tiny) {
      now.apply(swap);
      continue;
    }
    length = made;
    now.settle();
    now.find_swaps(swaps);
    if (length < shortest - tiny) {
      shortest = length;
      best = now;
    }
  }
  if (!(shortest < from.length - tiny)) return {};
  best.time();
  return best.schedule();
}

}  // namespace

pipeline_schedule local_search(pipeline_schedule from, std::uint64_t steps) {
  const auto& shape = from.shape;
  const auto cell = from.shares_wan ? shape.pipelines_per_cell() : 1;
  // A smaller cell at the end has less bandwidth: it determines the time, or does not matter.
  if (shape.pipelines % cell != 0) return from;
  auto made = search(from, cell, pipeline_lower_bound(shape), steps);
  if (!made) return from;
  auto whole = repeat(*made, shape, cell);
  whole.shares_wan = from.shares_wan;
  whole.made_by = from.made_by + ", searched";
  return whole;
}

}  // namespace troupe::planners
