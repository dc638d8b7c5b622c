#include "planners/schedule/rule_schedules.hpp"

#include <algorithm>

#include "messages/base/time.hpp"
#include "planners/schedule/event_queue.hpp"

namespace troupe::planners {

namespace {

using task_kind = stage_task::kind;

// Plays a DP-cell, or a single pipeline if the WAN is not shared, by the rules of ATLAS (section
// 4.4). An optimal order is a job-shop problem, NP-hard; the paper's rules are a greedy list
// schedule instead: at each instant every idle stage begins the best task that it may, where "may"
// is the memory limit (rule 2) and a free hop at the task's end (rule 3), and "best" is backward
// before forward (rule 5), and forward before recompute for ATLAS. On a shared WAN `free_at` is a
// reservation: as a stage begins a task only if its transfer can follow at once, no two transfers
// of a cell overlap on a hop. Stages are looked at only when something changes for them (wakes), so
// the cost is O(tasks * log(tasks)) and not O(slots * stages). It never fails: orders that exceed
// the memory limit, which only fixed ones can, are refused by schedule.cpp.
class player {
 public:
  player(const pipeline_shape& shape, std::uint32_t pipelines, const pipeline_rules& rules)
      : shape_{shape}, rules_{rules}, pipelines_{pipelines}, stages_{shape.stages} {
    const auto& c = shape.costs;
    // Times are sums of the same costs in different orders: smaller differences are rounding.
    same_ = 1e-9 * std::max(c.forward, c.backward);
    hop_length_ = rules.share_wan_in_time ? c.wan / pipelines : c.wan;
    result_.tasks.resize(std::size_t{pipelines_} * stages_);
    for (auto& tasks : result_.tasks) tasks.reserve(std::size_t{3} * shape.microbatches);
    state_.resize(result_.tasks.size());
    activation_.assign(state_.size() * shape.microbatches, never);
    gradient_.assign(activation_.size(), never);
    done_.assign(pipelines_, 0);
    wan_.resize(stages_);
    for (std::uint32_t s = 0; s < stages_; ++s) wan_[s] = shape.is_wan(s) ? 1 : 0;
    hops_.resize(std::size_t{2} * stages_ * (rules.share_wan_in_time ? 1 : pipelines_));
    for (std::uint32_t p = 0; p < pipelines_; ++p) {
      std::fill_n(activation_.begin() + offset(p, 0), shape.microbatches, 0.0);
      wake(p, 0, 0);
    }
  }

  pipeline_schedule run() {
    std::vector<std::uint64_t> due;  // stage, pipeline
    wakes_.run(
        same_,
        [&](const wake_up& w, double now) {
          now_ = now;
          due.push_back(w.who);
        },
        [&](double) {
          std::ranges::sort(due);
          due.erase(std::unique(due.begin(), due.end()), due.end());
          serve(due);
          due.clear();
        });
    return std::move(result_);
  }

 private:
  struct stage_state {
    double busy_until = 0;
    std::uint32_t forwards = 0, backwards = 0, next_in_order = 0;
    bool recomputed = false;  // for the next backward
  };
  struct hop {
    double free_at = 0;
    std::vector<std::uint32_t> waiting;  // pipelines whose task is delayed by rule 3
  };
  struct wake_up {
    double at;
    std::uint64_t who;
    bool operator<(const wake_up& o) const { return at > o.at; }
  };

  std::size_t index(std::uint32_t p, std::uint32_t s) const { return std::size_t{p} * stages_ + s; }
  std::ptrdiff_t offset(std::uint32_t p, std::uint32_t s) const {
    return static_cast<std::ptrdiff_t>(index(p, s) * shape_.microbatches);
  }
  /// When a stage's inputs arrive, by micro-batch; `never` until they are sent.
  double* activation(std::uint32_t p, std::uint32_t s) { return activation_.data() + offset(p, s); }
  double* gradient(std::uint32_t p, std::uint32_t s) { return gradient_.data() + offset(p, s); }
  hop& hop_of(std::uint32_t p, std::uint32_t after, bool backward) {
    const auto link = rules_.share_wan_in_time ? 0 : p;
    return hops_[(std::size_t{link} * stages_ + after) * 2 + (backward ? 1 : 0)];
  }
  /// Has a stage look for work at that time. Stage and pipeline are one number, so that sorting
  /// gives the order in which stages are served.
  void wake(std::uint32_t p, std::uint32_t s, double when) {
    wakes_.add({std::max(when, now_), std::uint64_t{s} << 32 | p});
  }

  /// Stage by stage, and in each stage the pipelines in the rules' order.
  void serve(const std::vector<std::uint64_t>& due) {
    for (std::size_t i = 0; i < due.size();) {
      const auto s = static_cast<std::uint32_t>(due[i] >> 32);
      asking_.clear();
      for (; i < due.size() && due[i] >> 32 == s; ++i)
        asking_.push_back(static_cast<std::uint32_t>(due[i]));
      if (rules_.min_progress_first && asking_.size() > 1)
        std::ranges::stable_sort(asking_, {}, [&](auto p) { return done_[p]; });
      for (const auto p : asking_) choose(p, s);
    }
  }

  /// The next forward's input has arrived, and memory allows one micro-batch more (rule 2).
  bool may_forward(const stage_state& x, std::uint32_t p, std::uint32_t s) {
    if (x.forwards == shape_.microbatches || activation(p, s)[x.forwards] > now_ + same_)
      return false;
    const auto limit = shape_.flight_limit(s);
    return !limit || x.forwards - x.backwards < *limit;
  }

  /// Begins a task of an idle stage by the rules: a backward that can start; no other while a
  /// recompute waits for its backward; else forward or recompute, in the rules' order.
  void choose(std::uint32_t p, std::uint32_t s) {
    auto& x = state_[index(p, s)];
    if (x.busy_until > now_ + same_) return;
    if (!rules_.order.empty()) return follow_order(p, s);
    const bool gradient_is_here =
        x.backwards < shape_.microbatches && gradient(p, s)[x.backwards] <= now_ + same_;
    const bool needs_recompute = shape_.recomputes(s);
    if (gradient_is_here && (x.recomputed || !needs_recompute)) {
      if (transfer_could_start(p, s, task_kind::backward)) return begin(p, s, task_kind::backward);
      const bool waits = shape_.holds_one_at_end && s + 1 == stages_;
      if (!x.recomputed && !waits && may_forward(x, p, s)) try_forward(p, s);
      return;
    }
    if (x.recomputed) return;  // rule 4: the backward follows its recompute
    const bool recompute = needs_recompute && recompute_is_due(x, p, s);
    const bool forward = rules_.forward_first && may_forward(x, p, s);
    if (forward && try_forward(p, s)) return;
    if (recompute) return begin(p, s, task_kind::recompute);
    if (!forward && may_forward(x, p, s)) try_forward(p, s);
  }

  /// Just in time: it ends when the gradient arrives, or later.
  bool recompute_is_due(const stage_state& x, std::uint32_t p, std::uint32_t s) {
    if (x.backwards >= x.forwards || gradient(p, s)[x.backwards] == never) return false;
    const double due = gradient(p, s)[x.backwards] - shape_.at(s).recompute;
    if (due <= now_ + same_) return true;
    wake(p, s, due);
    return false;
  }

  /// The next task of a fixed order, once its input is there; recomputes are not in the order.
  void follow_order(std::uint32_t p, std::uint32_t s) {
    auto& x = state_[index(p, s)];
    const auto& order = rules_.order[s];
    if (x.next_in_order == order.size()) return;
    const auto next = order[x.next_in_order];
    if (next >= 0) {
      if (activation(p, s)[next] <= now_ + same_) begin(p, s, task_kind::forward);
      return;
    }
    const double arrives = gradient(p, s)[-1 - next];
    if (arrives == never) return;
    if (shape_.recomputes(s) && !x.recomputed) {
      const double due = arrives - shape_.at(s).recompute;
      if (due > now_ + same_) return wake(p, s, due);
      return begin(p, s, task_kind::recompute);
    }
    if (arrives <= now_ + same_) begin(p, s, task_kind::backward);
  }

  double length_of(task_kind k, std::uint32_t s) const {
    const auto c = shape_.at(s);
    return k == task_kind::forward     ? c.forward
           : k == task_kind::recompute ? c.recompute
                                       : c.backward;
  }

  /// Rule 3. If the transfer's hop is busy, the stage tries again when it could be free in time.
  bool transfer_could_start(std::uint32_t p, std::uint32_t s, task_kind k) {
    if (!rules_.share_wan_in_time) return true;
    const bool back = k == task_kind::backward;
    if (back ? s == 0 || !wan_[s - 1] : !wan_[s]) return true;
    auto& h = hop_of(p, back ? s - 1 : s, back);
    const auto waits = std::find(h.waiting.begin(), h.waiting.end(), p);
    if (h.free_at <= now_ + length_of(k, s) + same_) {
      if (waits != h.waiting.end()) h.waiting.erase(waits);
      return true;
    }
    if (waits == h.waiting.end()) h.waiting.push_back(p);
    wake(p, s, h.free_at - length_of(k, s));
    return false;
  }

  bool try_forward(std::uint32_t p, std::uint32_t s) {
    if (!transfer_could_start(p, s, task_kind::forward)) return false;
    begin(p, s, task_kind::forward);
    return true;
  }

  std::uint32_t microbatch_of(const stage_state& x, std::uint32_t s, task_kind k) const {
    if (rules_.order.empty()) return k == task_kind::forward ? x.forwards : x.backwards;
    const auto next = rules_.order[s][x.next_in_order];
    return static_cast<std::uint32_t>(next >= 0 ? next : -1 - next);
  }

  void begin(std::uint32_t p, std::uint32_t s, task_kind k) {
    auto& x = state_[index(p, s)];
    const auto m = microbatch_of(x, s, k);
    const double end = now_ + length_of(k, s);
    result_.tasks[index(p, s)].push_back({k, m, now_, end});
    x.busy_until = end;
    x.recomputed = k == task_kind::recompute;
    wake(p, s, end);
    if (k == task_kind::recompute) return;
    ++x.next_in_order;
    ++done_[p];
    (k == task_kind::forward ? x.forwards : x.backwards) += 1;
    result_.max_in_flight = std::max(result_.max_in_flight,
                                     x.forwards - x.backwards + (k == task_kind::backward ? 1 : 0));
    if (k == task_kind::backward) result_.length = std::max(result_.length, end + shape_.after(s));
    send(p, s, m, k == task_kind::backward, end);
  }

  /// Notes when the task's tensor arrives, and wakes the receiver then, and when it has to
  /// recompute.
  void send(std::uint32_t p, std::uint32_t s, std::uint32_t m, bool back, double ready) {
    if (!back && s + 1 == stages_) {
      gradient(p, s)[m] = ready;  // the loss is local
      return;
    }
    if (back && s == 0) return;
    const auto to = back ? s - 1 : s + 1;
    const auto after = std::min(s, to);
    double arrives = ready + shape_.costs.lan;
    if (wan_[after]) {
      auto& h = hop_of(p, after, back);
      const double begins = std::max(ready, h.free_at);
      h.free_at = begins + hop_length_;
      arrives = h.free_at + shape_.costs.wan_latency;
      result_.transfers.push_back({p, after, m, back, begins, h.free_at});
      const auto length = length_of(back ? task_kind::backward : task_kind::forward, s);
      for (const auto waiting : h.waiting) wake(waiting, s, h.free_at - length);
    }
    (back ? gradient(p, to) : activation(p, to))[m] = arrives;
    wake(p, to, arrives);
    // The receiver recomputes while the gradient is computed or transferred.
    if (back && shape_.recomputes(to)) wake(p, to, arrives - shape_.at(to).recompute);
  }

  const pipeline_shape& shape_;
  const pipeline_rules& rules_;
  const std::uint32_t pipelines_, stages_;
  pipeline_schedule result_;
  std::vector<stage_state> state_;             // pipeline * stages + stage
  std::vector<double> activation_, gradient_;  // when they arrive; likewise, then micro-batch
  std::vector<std::uint64_t> done_;            // by pipeline
  std::vector<char> wan_;                      // is the hop after this stage WAN?
  std::vector<hop> hops_;
  double hop_length_ = 0, same_ = 0;
  event_queue<wake_up> wakes_;
  std::vector<std::uint32_t> asking_;
  double now_ = 0;
};

/// Appends a copy of a cell's schedule for the pipelines from `pipelines` on.
void append(pipeline_schedule& to, const pipeline_schedule& cell, std::uint32_t pipelines) {
  to.tasks.insert(to.tasks.end(), cell.tasks.begin(), cell.tasks.end());
  for (auto t : cell.transfers) {
    t.pipeline += pipelines;
    to.transfers.push_back(t);
  }
  to.length = std::max(to.length, cell.length);
  to.max_in_flight = std::max(to.max_in_flight, cell.max_in_flight);
}

void by_begin(pipeline_schedule& s) {
  std::ranges::stable_sort(s.transfers, {}, &wan_transfer::begin);
}

}  // namespace

pipeline_schedule repeat(const pipeline_schedule& cell, const pipeline_shape& shape,
                         std::uint32_t pipelines_per_cell) {
  pipeline_schedule result;
  for (std::uint32_t p = 0; p < shape.pipelines; p += pipelines_per_cell) append(result, cell, p);
  by_begin(result);
  result.shape = shape;
  return result;
}

pipeline_schedule simulate_rules(const pipeline_shape& shape, const pipeline_rules& rules) {
  // Cells do not share WAN links, and cells of the same size have the same schedule.
  const auto cell = rules.share_wan_in_time ? shape.pipelines_per_cell() : 1;
  pipeline_schedule result;
  result.tasks.reserve(std::size_t{shape.pipelines} * shape.stages);
  std::uint32_t made = 0;
  if (shape.pipelines >= cell) {
    const auto one = player{shape, cell, rules}.run();
    for (; made + cell <= shape.pipelines; made += cell) append(result, one, made);
  }
  if (made < shape.pipelines)
    append(result, player{shape, shape.pipelines - made, rules}.run(), made);
  by_begin(result);
  result.shape = shape;
  result.shares_wan = rules.share_wan_in_time;
  return result;
}

}  // namespace troupe::planners
