#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "planners/schedule/schedule.hpp"

// A second simulation of one DP-cell, of another kind than the planner's (whose code its author
// knew): it steps through the slots, and in each slot asks every idle GPU what the paper's rules
// let it do. Slow and simple; times are whole slots.

namespace troupe::slots {

struct costs {
  int forward = 1, recompute = 1, backward = 2, lan = 0;
  int hop = 2;  // of one transfer, over all shares that it has
};

struct begun {
  char what;  // F, R or B
  int microbatch, slot;
  bool operator==(const begun&) const = default;
};

struct rules {
  bool fixed = false;  // gpipe, megatron
  bool forward_before_recompute = false;
  bool shared = false;
  bool min_progress = false;
};

inline rules rules_named(std::string_view name) {
  return {name == "gpipe" || name == "megatron",
          name == "varuna-forward-first" || name.starts_with("atlas"), name.starts_with("atlas"),
          name == "atlas-least-progress"};
}

class machine {
 public:
  machine(const planners::pipeline_shape& s, const costs& c, std::string_view name)
      : stages_{static_cast<int>(s.stages)},
        pipelines_{static_cast<int>(s.pipelines)},
        microbatches_{static_cast<int>(s.microbatches)},
        limit_{s.max_in_flight ? static_cast<int>(*s.max_in_flight) : microbatches_},
        recompute_{s.recompute},
        name_{name},
        rules_{rules_named(name)},
        cost_(s.stages, c) {
    for (std::size_t i = 0; i < s.by_stage.size(); ++i) {
      cost_[i].forward = static_cast<int>(s.by_stage[i].forward);
      cost_[i].recompute = static_cast<int>(s.by_stage[i].recompute);
      cost_[i].backward = static_cast<int>(s.by_stage[i].backward);
    }
    int last = -1;
    for (const auto n : s.stages_of_datacenter) {
      if (n > 0 && last >= 0) wan_after_.push_back(last);
      last += static_cast<int>(n);
    }
    for (int p = 0; p < pipelines_; ++p)
      for (int i = 0; i < stages_; ++i) gpus_[{p, i}].order = fixed_order(i);
  }

  /// Slots until all is done.
  int run() {
    int slot = 0, left = pipelines_ * stages_ * microbatches_;
    for (; left > 0 && slot < 100'000; ++slot)
      for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < stages_; ++i)
          for (const int p : ranks()) {
            const char what = wish(p, i, slot);
            if (what == '-') continue;
            left -= what == 'B' ? 1 : 0;
            begin(p, i, what, slot);
            again = true;
          }
      }
    return end_;
  }

  const std::vector<begun>& of(int pipeline, int stage) { return gpus_[{pipeline, stage}].did; }

 private:
  struct gpu {
    int busy_until = 0, forwards = 0, backwards = 0;
    bool recomputed = false;
    std::map<int, int> activation, gradient;  // micro-batch: the slot in which it can be used
    std::vector<char> order;                  // F and B
    std::vector<begun> did;
  };

  std::vector<char> fixed_order(int stage) const {
    std::vector<char> order;
    if (!rules_.fixed) return order;
    const int ahead = name_ == "gpipe" ? microbatches_ : std::min(microbatches_, stages_ - stage);
    for (int f = 0, b = 0; b < microbatches_;)
      if (f < microbatches_ && f - b < ahead)
        order.push_back('F'), ++f;
      else
        order.push_back('B'), ++b;
    return order;
  }

  /// Who asks first.
  std::vector<int> ranks() const {
    std::vector<int> all;
    for (int p = 0; p < pipelines_; ++p) all.push_back(p);
    if (rules_.min_progress)
      std::stable_sort(all.begin(), all.end(), [&](int a, int b) { return done(a) < done(b); });
    return all;
  }
  int done(int pipeline) const {
    int sum = 0;
    for (int i = 0; i < stages_; ++i) {
      const auto& g = gpus_.at({pipeline, i});
      sum += g.forwards + g.backwards;
    }
    return sum;
  }

  bool is_wan(int after) const {
    return std::find(wan_after_.begin(), wan_after_.end(), after) != wan_after_.end();
  }
  /// Until when a hop is taken, by (share, hop, direction).
  int& taken(int pipeline, int after, bool back) {
    return taken_[{rules_.shared ? 0 : pipeline, after * 2 + (back ? 1 : 0)}];
  }

  /// Rule 3: could what is made be sent at once?
  bool sends_at_once(int p, int i, char what, int slot) {
    const bool back = what == 'B';
    const int after = back ? i - 1 : i;
    if (!rules_.shared || !is_wan(after)) return true;
    return taken(p, after, back) <= slot + (back ? at(i).backward : at(i).forward);
  }

  const costs& at(int i) const { return cost_[static_cast<std::size_t>(i)]; }
  bool last(int i) const { return i == stages_ - 1; }
  bool keeps(int i) const { return last(i) || !recompute_; }
  static bool here(const std::map<int, int>& arrivals, int m, int slot) {
    const auto at = arrivals.find(m);
    return at != arrivals.end() && at->second <= slot;
  }

  /// A GPU's task in this slot; '-': none.
  char wish(int p, int i, int slot) {
    auto& g = gpus_[{p, i}];
    if (g.busy_until > slot) return '-';
    const bool gradient = here(g.gradient, g.backwards, slot);
    // Just in time: its end hides behind the gradient's arrival.
    const bool recompute =
        !keeps(i) && !g.recomputed && here(g.gradient, g.backwards, slot + at(i).recompute);
    const bool arrived = i == 0 || here(g.activation, g.forwards, slot);
    if (rules_.fixed) {
      const auto next = static_cast<std::size_t>(g.forwards + g.backwards);
      if (next == g.order.size()) return '-';
      if (g.order[next] == 'F') return arrived ? 'F' : '-';
      if (keeps(i) || g.recomputed) return gradient ? 'B' : '-';
      return recompute ? 'R' : '-';
    }
    const bool forward = !g.recomputed && g.forwards < microbatches_ && arrived &&
                         g.forwards - g.backwards < limit_ && sends_at_once(p, i, 'F', slot);
    if (gradient && (keeps(i) || g.recomputed)) {  // rule 5
      if (sends_at_once(p, i, 'B', slot)) return 'B';
      return forward ? 'F' : '-';
    }
    if (g.recomputed) return '-';  // rule 4
    if (rules_.forward_before_recompute && forward) return 'F';
    if (recompute) return 'R';
    return forward ? 'F' : '-';
  }

  void begin(int p, int i, char what, int slot) {
    auto& g = gpus_[{p, i}];
    const int m = what == 'F' ? g.forwards : g.backwards;
    g.did.push_back({what, m, slot});
    g.recomputed = what == 'R';
    const int end = slot + (what == 'F'   ? at(i).forward
                            : what == 'R' ? at(i).recompute
                                          : at(i).backward);
    g.busy_until = end;
    if (what == 'R') return;
    ++(what == 'F' ? g.forwards : g.backwards);
    if (what == 'B') end_ = std::max(end_, end);
    if (what == 'F' && last(i)) g.gradient[m] = end;
    const int to = what == 'F' ? i + 1 : i - 1, after = std::min(i, to);
    if (to < 0 || to == stages_) return;
    int arrives = end + at(i).lan;
    if (is_wan(after)) {
      auto& until = taken(p, after, what == 'B');
      until = arrives = std::max(end, until) + at(i).hop;
    }
    (what == 'F' ? gpus_[{p, to}].activation : gpus_[{p, to}].gradient)[m] = arrives;
  }

  int stages_, pipelines_, microbatches_, limit_;
  bool recompute_;
  std::string_view name_;
  rules rules_;
  std::vector<costs> cost_;  // by stage
  std::vector<int> wan_after_;
  std::map<std::pair<int, int>, gpu> gpus_;
  std::map<std::pair<int, int>, int> taken_;
  int end_ = 0;
};

}  // namespace troupe::slots
