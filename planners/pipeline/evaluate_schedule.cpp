#include "planners/pipeline/evaluate_schedule.hpp"

#include "messages/time.hpp"

#include <algorithm>
#include <set>

namespace troupe::planners {

namespace {

class execution {
 public:
  execution(const pipeline_schedule& s, const measured_times& t)
      : shape_{s.shape},
        times_{t},
        shared_{s.shares_wan},
        cell_{s.shares_wan ? s.shape.pipelines_per_cell() : 1},
        orders_{stage_orders(s)},
        stages_(orders_.size()),
        activation_(orders_.size() * s.shape.microbatches, never),
        gradient_(activation_.size(), never),
        hops_((s.shape.pipelines / cell_ + 1) * s.shape.stages * 2) {
    for (std::uint32_t i = 0; i < stages_.size(); ++i)
      if (i % shape_.stages == 0)
        std::fill_n(activation_.begin() + i * shape_.microbatches, shape_.microbatches, 0.0);
  }

  double run() {
    std::size_t left = 0;
    for (std::uint32_t i = 0; i < stages_.size(); ++i) {
      left += orders_[i].size();
      happen(0, {kind::look, i});
    }
    while (!due_.empty()) {
      now_ = due_.front().at;
      // All that comes at one instant takes part in a hop's choice.
      while (!due_.empty() && due_.front().at <= now_ + tiny) {
        std::pop_heap(due_.begin(), due_.end());
        const auto e = due_.back();
        due_.pop_back();
        if (e.what == kind::step) left -= end(e.where);
        if (e.what == kind::hop) hops_[e.where].busy = false, asked_.push_back(e.where);
        if (e.what != kind::hop) look(e.where);
      }
      for (const auto h : asked_) choose(h);
      asked_.clear();
    }
    return left == 0 ? length_ : never;
  }

 private:
  enum class kind { look, step, hop };  // at a stage, its step's end, a hop is free
  struct event {
    double at = 0;
    std::uint64_t sequence = 0;
    kind what = kind::look;
    std::uint32_t where = 0;
    bool operator<(const event& o) const {  // later
      return at != o.at ? at > o.at : sequence > o.sequence;
    }
  };
  struct place {
    std::size_t next = 0;
    bool busy = false;
  };
  struct transfer {
    std::uint32_t turn = 0, stage = 0, microbatch = 0;
    bool operator<(const transfer& o) const {
      return turn != o.turn ? turn < o.turn : stage < o.stage;
    }
  };
  struct hop {
    bool busy = false;
    std::set<transfer> waiting;
  };

  void happen(double at, std::pair<kind, std::uint32_t> what) {
    due_.push_back({at, ++sequence_, what.first, what.second});
    std::push_heap(due_.begin(), due_.end());
  }
  std::size_t at(std::uint32_t stage, std::uint32_t m) const {
    return std::size_t{stage} * shape_.microbatches + m;
  }

  void look(std::uint32_t stage) {
    auto& x = stages_[stage];
    if (x.busy || x.next == orders_[stage].size()) return;
    const auto& step = orders_[stage][x.next];
    const auto m = at(stage, step.microbatch);
    if (step.what == stage_task::kind::forward && activation_[m] > now_ + tiny) return;
    if (step.what == stage_task::kind::backward && gradient_[m] > now_ + tiny) return;
    const auto& t = times_.stages[stage];
    x.busy = true;
    happen(now_ + (step.what == stage_task::kind::forward     ? t.forward
                   : step.what == stage_task::kind::recompute ? t.recompute
                                                              : t.backward),
           {kind::step, stage});
  }

  /// The stage's step has ended. Gives 1.
  std::size_t end(std::uint32_t stage) {
    auto& x = stages_[stage];
    x.busy = false;
    const auto step = orders_[stage][x.next++];
    if (step.what == stage_task::kind::recompute) return 1;
    const bool back = step.what == stage_task::kind::backward;
    const auto& t = times_.stages[stage];
    if (back) length_ = std::max(length_, now_ + t.update + t.exchange);
    const auto s = stage % shape_.stages;
    if (back && s == 0) return 1;
    if (!back && s + 1 == shape_.stages) {
      gradient_[at(stage, step.microbatch)] = now_;
      return 1;
    }
    const auto after = back ? s - 1 : s;
    if (!shape_.is_wan(after)) {
      arrive(back ? stage - 1 : stage + 1, step.microbatch, back, now_ + times_.lan);
      return 1;
    }
    const auto h = (stage / shape_.stages / cell_ * shape_.stages + after) * 2 + (back ? 1 : 0);
    hops_[h].waiting.insert({step.turn, stage, step.microbatch});
    asked_.push_back(h);
    return 1;
  }

  void choose(std::uint32_t h) {
    auto& way = hops_[h];
    if (way.busy || way.waiting.empty()) return;
    const auto t = *way.waiting.begin();
    way.waiting.erase(way.waiting.begin());
    way.busy = true;
    const bool back = h % 2 == 1;
    const auto first = t.stage / shape_.stages / cell_ * cell_;
    const auto sharing = shared_ ? std::min(cell_, shape_.pipelines - first) : 1;
    const double left = now_ + times_.wan[h / 2 % shape_.stages] / sharing;
    happen(left, {kind::hop, h});
    arrive(back ? t.stage - 1 : t.stage + 1, t.microbatch, back, left + times_.wan_latency);
  }

  void arrive(std::uint32_t stage, std::uint32_t m, bool back, double when) {
    (back ? gradient_ : activation_)[at(stage, m)] = when;
    happen(when, {kind::look, stage});
  }

  const pipeline_shape& shape_;
  const measured_times& times_;
  const bool shared_;
  const std::uint32_t cell_;
  std::vector<std::vector<stage_step>> orders_;
  std::vector<place> stages_;
  std::vector<double> activation_, gradient_;  // when they are there; by stage, then micro-batch
  std::vector<hop> hops_;                      // (cell, hop, direction)
  std::vector<std::uint32_t> asked_;
  std::vector<event> due_;  // a heap
  std::uint64_t sequence_ = 0;
  double now_ = 0, length_ = 0;
  static constexpr double tiny = 1e-9;
};

}  // namespace

double carried_out_s(const pipeline_schedule& schedule, const measured_times& times) {
  return execution{schedule, times}.run();
}

}  // namespace troupe::planners
