#include "planners/pipeline_simulation.hpp"

#include <algorithm>
#include <queue>
#include <set>

namespace troupe::planners {

namespace {

constexpr double never = 1e300;
// Times are sums of the same few costs in different orders: closer than this is the same time.
constexpr double same = 1e-9;

using task_kind = stage_task::kind;

class player {
 public:
  player(const pipeline_shape& shape, const pipeline_rules& rules)
      : shape_{shape}, rules_{rules}, stages_(shape.pipelines * shape.stages) {
    result_.shape = shape;
    result_.tasks.resize(stages_.size());
    for (auto& s : stages_) {
      s.activation.assign(shape.microbatches, never);
      s.gradient.assign(shape.microbatches, never);
    }
    done_.assign(shape.pipelines, 0);
    const auto shares = rules.share_wan_in_time ? 1 : shape.pipelines;
    hops_.resize(std::size_t{2} * shape.stages * shares);
    hop_length_ = rules.share_wan_in_time ? shape.costs.wan / shape.pipelines : shape.costs.wan;
    for (std::uint32_t p = 0; p < shape.pipelines; ++p) {
      std::fill(at(p, 0).activation.begin(), at(p, 0).activation.end(), 0.0);
      wake(p, 0, 0);
    }
  }

  pipeline_schedule run() {
    while (!wakes_.empty()) {
      const double now = now_ = wakes_.top().at;
      std::set<std::pair<std::uint32_t, std::uint32_t>> due;  // stage, pipeline
      while (!wakes_.empty() && wakes_.top().at <= now + same) {
        due.emplace(wakes_.top().stage, wakes_.top().pipeline);
        wakes_.pop();
      }
      look_at(due, now);
    }
    std::stable_sort(result_.transfers.begin(), result_.transfers.end(),
                     [](const auto& a, const auto& b) { return a.begin < b.begin; });
    return std::move(result_);
  }

 private:
  struct stage_state {
    std::vector<double> activation, gradient;  // when they arrive
    std::uint32_t forwards = 0, backwards = 0;
    std::size_t next_in_order = 0;
    bool recomputed = false;  // for the next backward
    double busy_until = 0;
  };
  struct hop {
    double free_at = 0;
    std::set<std::pair<std::uint32_t, std::uint32_t>> waiting;  // stage, pipeline: rule 3
  };
  struct wake_up {
    double at;
    std::uint32_t stage, pipeline;
    bool operator<(const wake_up& o) const { return at > o.at; }
  };

  stage_state& at(std::uint32_t p, std::uint32_t s) { return stages_[p * shape_.stages + s]; }
  hop& hop_of(std::uint32_t p, std::uint32_t after, bool backward) {
    const auto share = rules_.share_wan_in_time ? 0 : p;
    return hops_[(share * shape_.stages + after) * 2 + (backward ? 1 : 0)];
  }
  void wake(std::uint32_t p, std::uint32_t s, double when) {
    wakes_.push({std::max(when, now_), s, p});
  }

  /// Stage by stage, and in each the pipelines in the order that the rules give.
  void look_at(const std::set<std::pair<std::uint32_t, std::uint32_t>>& due, double now) {
    for (auto it = due.begin(); it != due.end();) {
      const auto s = it->first;
      std::vector<std::uint32_t> pipelines;
      for (; it != due.end() && it->first == s; ++it) pipelines.push_back(it->second);
      if (rules_.least_progress_first)
        std::stable_sort(pipelines.begin(), pipelines.end(),
                         [&](auto a, auto b) { return done_[a] < done_[b]; });
      for (const auto p : pipelines) choose(p, s, now);
    }
  }

  bool may_forward(const stage_state& x, double now) const {
    if (x.forwards == shape_.microbatches || x.activation[x.forwards] > now + same) return false;
    return !shape_.most_held || x.forwards - x.backwards < *shape_.most_held;
  }

  void choose(std::uint32_t p, std::uint32_t s, double now) {
    auto& x = at(p, s);
    if (x.busy_until > now + same) return;
    if (!rules_.order.empty()) return follow_order(p, s, now);
    const bool gradient_is_here =
        x.backwards < shape_.microbatches && x.gradient[x.backwards] <= now + same;
    const bool needs_recompute = s + 1 < shape_.stages;
    if (gradient_is_here && (x.recomputed || !needs_recompute)) {
      if (transfer_could_start(p, s, task_kind::backward, now))
        return begin(p, s, task_kind::backward, now);
      if (!x.recomputed && may_forward(x, now)) try_forward(p, s, now);
      return;
    }
    if (x.recomputed) return;  // rule 4: its backward follows a recompute
    const bool recompute = needs_recompute && recompute_is_due(x, p, s, now);
    const bool forward = rules_.forward_first && may_forward(x, now);
    if (forward && try_forward(p, s, now)) return;
    if (recompute) return begin(p, s, task_kind::recompute, now);
    if (!forward && may_forward(x, now)) try_forward(p, s, now);
  }

  /// Just in time: it ends when the gradient arrives, or later.
  bool recompute_is_due(const stage_state& x, std::uint32_t p, std::uint32_t s, double now) {
    if (x.backwards >= x.forwards || x.gradient[x.backwards] == never) return false;
    const double due = x.gradient[x.backwards] - shape_.costs.recompute;
    if (due <= now + same) return true;
    wake(p, s, due);
    return false;
  }

  void follow_order(std::uint32_t p, std::uint32_t s, double now) {
    auto& x = at(p, s);
    const auto& order = rules_.order[s];
    if (x.next_in_order == order.size()) return;
    const auto next = order[x.next_in_order];
    if (next >= 0) {
      if (x.activation[static_cast<std::size_t>(next)] <= now + same)
        begin(p, s, task_kind::forward, now);
      return;
    }
    const auto m = static_cast<std::size_t>(-1 - next);
    if (x.gradient[m] == never) return;
    if (s + 1 < shape_.stages && !x.recomputed) {
      const double due = x.gradient[m] - shape_.costs.recompute;
      if (due > now + same) return wake(p, s, due);
      return begin(p, s, task_kind::recompute, now);
    }
    if (x.gradient[m] <= now + same) begin(p, s, task_kind::backward, now);
  }

  double length_of(task_kind k) const {
    return k == task_kind::forward     ? shape_.costs.forward
           : k == task_kind::recompute ? shape_.costs.recompute
                                       : shape_.costs.backward;
  }

  /// Rule 3. Where the transfer's hop is taken, the stage looks again when it could be free in
  /// time.
  bool transfer_could_start(std::uint32_t p, std::uint32_t s, task_kind k, double now) {
    if (!rules_.share_wan_in_time) return true;
    const bool back = k == task_kind::backward;
    if (back ? s == 0 || !shape_.is_wan(s - 1) : !shape_.is_wan(s)) return true;
    auto& h = hop_of(p, back ? s - 1 : s, back);
    if (h.free_at <= now + length_of(k) + same) {
      h.waiting.erase({s, p});
      return true;
    }
    h.waiting.emplace(s, p);
    wake(p, s, h.free_at - length_of(k));
    return false;
  }

  bool try_forward(std::uint32_t p, std::uint32_t s, double now) {
    if (!transfer_could_start(p, s, task_kind::forward, now)) return false;
    begin(p, s, task_kind::forward, now);
    return true;
  }

  std::uint32_t microbatch_of(const stage_state& x, std::uint32_t s, task_kind k) const {
    if (rules_.order.empty()) return k == task_kind::forward ? x.forwards : x.backwards;
    const auto next = rules_.order[s][x.next_in_order];
    return static_cast<std::uint32_t>(next >= 0 ? next : -1 - next);
  }

  void begin(std::uint32_t p, std::uint32_t s, task_kind k, double now) {
    auto& x = at(p, s);
    const auto m = microbatch_of(x, s, k);
    const double end = now + length_of(k);
    result_.tasks[p * shape_.stages + s].push_back({k, m, now, end});
    x.busy_until = end;
    x.recomputed = k == task_kind::recompute;
    wake(p, s, end);
    if (k == task_kind::recompute) return;
    ++x.next_in_order;
    ++done_[p];
    (k == task_kind::forward ? x.forwards : x.backwards) += 1;
    result_.most_held =
        std::max(result_.most_held, x.forwards - x.backwards + (k == task_kind::backward ? 1 : 0));
    if (k == task_kind::backward) result_.length = std::max(result_.length, end);
    send(p, s, m, k == task_kind::backward, end);
  }

  void send(std::uint32_t p, std::uint32_t s, std::uint32_t m, bool back, double ready) {
    if (!back && s + 1 == shape_.stages) {
      at(p, s).gradient[m] = ready;  // the loss is here
      return;
    }
    if (back && s == 0) return;
    const auto to = back ? s - 1 : s + 1;
    const auto after = std::min(s, to);
    double arrives = ready + shape_.costs.lan;
    if (shape_.is_wan(after)) {
      auto& h = hop_of(p, after, back);
      const double begins = std::max(ready, h.free_at);
      arrives = h.free_at = begins + hop_length_;
      result_.transfers.push_back({p, after, m, back, begins, arrives});
      for (const auto& [stage, pipeline] : h.waiting)
        wake(pipeline, stage, h.free_at - (back ? shape_.costs.backward : shape_.costs.forward));
    }
    (back ? at(p, to).gradient : at(p, to).activation)[m] = arrives;
    wake(p, to, arrives);
    // The receiver recomputes while the gradient is still being made or on its way.
    if (back) wake(p, to, arrives - shape_.costs.recompute);
  }

  const pipeline_shape& shape_;
  const pipeline_rules& rules_;
  pipeline_schedule result_;
  std::vector<stage_state> stages_;
  std::vector<std::uint64_t> done_;  // by pipeline
  std::vector<hop> hops_;
  double hop_length_ = 0;
  std::priority_queue<wake_up> wakes_;
  double now_ = 0;
};

}  // namespace

pipeline_schedule play(const pipeline_shape& shape, const pipeline_rules& rules) {
  return player{shape, rules}.run();
}

}  // namespace troupe::planners
