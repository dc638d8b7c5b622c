#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <map>

#include "harness/pipeline_shapes.hpp"
#include "messages/base/random.hpp"
#include "messages/domain/schedules.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "planners/schedule/schedule.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

constexpr double tiny = 1e-9;
using orders = std::vector<std::vector<stage_step>>;  // by pipeline * stages + stage

pipeline_shape random_shape(random_source& random, std::uint32_t stages, std::uint32_t pipelines,
                            std::uint32_t microbatches) {
  const auto up_to = [&](std::uint32_t n) {
    return 1 + static_cast<std::uint32_t>(random.below(n));
  };
  pipeline_shape s;
  s.stages = up_to(stages);
  s.pipelines = up_to(pipelines);
  s.microbatches = up_to(microbatches);
  s.stages_of_datacenter = troupe::test::split_evenly(s.stages, up_to(3));
  s.costs.forward = 1 + random.uniform();
  s.costs.recompute = random.chance(0.3) ? 0 : random.uniform() * 2;
  s.costs.backward = 1 + 2 * random.uniform();
  s.costs.lan = random.chance(0.5) ? 0 : random.uniform() / 2;
  s.costs.wan = random.uniform() * 6;
  s.costs.wan_latency = random.chance(0.5) ? 0 : random.uniform();
  if (random.chance(0.4))
    for (std::uint32_t i = 0; i < s.stages; ++i)
      s.by_stage.push_back({s.costs.forward * (0.3 + 0.7 * random.uniform()), s.costs.recompute,
                            s.costs.backward * (0.3 + 0.7 * random.uniform())});
  if (random.chance(0.3)) s.cell = up_to(s.pipelines);
  if (random.chance(0.4)) s.max_in_flight = up_to(microbatches);
  s.recompute = !random.chance(0.3);
  return s;
}

double length_of(const pipeline_shape& s, std::string_view name) {
  const auto plan = schedule_pipeline(s, name);
  return plan ? plan->length : 1e300;
}

/// Carries orders out: each GPU its steps one after the other, each as soon as it can; and at each
/// shared hop and direction, of the tensors that wait, the smallest rank first.
class crew {
 public:
  crew(const pipeline_shape& s, const orders& o, bool shared) : s_{s}, o_{o}, shared_{shared} {
    next_.assign(o.size(), 0);
    free_.assign(o.size(), 0);
    for (std::uint32_t gpu = 0; gpu < o.size(); gpu += s.stages)
      for (std::uint32_t m = 0; m < s.microbatches; ++m) arrives_[{gpu, m, false}] = 0;
  }

  /// How long it takes; 0: the orders wait for each other.
  double run() {
    std::size_t left = 0;
    for (const auto& x : o_) left += x.size();
    for (;;) {
      double at = 1e300;
      std::uint32_t gpu = 0;
      for (std::uint32_t g = 0; g < o_.size(); ++g)
        if (const auto t = could_begin(g); t < at) at = t, gpu = g;
      shared_hop* d = nullptr;
      for (auto& [key, x] : hops_)
        if (const auto t = x.could_begin(); t < at - tiny) at = t, d = &x;
      if (at == 1e300) return left == 0 ? length_ : 0;
      if (d)
        cross(*d, at);
      else
        work(gpu, at), --left;
    }
  }

 private:
  struct tensor {
    double ready = 0;
    std::uint32_t rank = 0, to = 0, microbatch = 0;
    bool back = false;
  };
  struct shared_hop {
    double free = 0;
    std::vector<tensor> waiting;
    double could_begin() const {
      double at = 1e300;
      for (const auto& t : waiting) at = std::min(at, std::max(free, t.ready));
      return at;
    }
  };

  double could_begin(std::uint32_t gpu) const {
    if (next_[gpu] == o_[gpu].size()) return 1e300;
    const auto& x = o_[gpu][next_[gpu]];
    const bool back = x.what != stage_step::kind::forward;
    const auto at = arrives_.find({gpu, x.microbatch, back});
    if (at == arrives_.end()) return 1e300;
    const bool early = x.what == stage_step::kind::recompute;
    return std::max(free_[gpu], at->second - (early ? s_.at(gpu % s_.stages).recompute : 0));
  }

  void work(std::uint32_t gpu, double at) {
    const auto& x = o_[gpu][next_[gpu]++];
    const auto stage = gpu % s_.stages;
    const auto c = s_.at(stage);
    if (x.what == stage_step::kind::recompute) {
      free_[gpu] = at + c.recompute;
      return;
    }
    const bool back = x.what == stage_step::kind::backward;
    const double end = free_[gpu] = at + (back ? c.backward : c.forward);
    length_ = std::max(length_, end);
    if (!back && stage + 1 == s_.stages) arrives_[{gpu, x.microbatch, true}] = end;
    if (back ? stage == 0 : stage + 1 == s_.stages) return;
    const auto to = back ? gpu - 1 : gpu + 1, after = back ? stage - 1 : stage;
    if (!s_.is_wan(after)) {
      arrives_[{to, x.microbatch, back}] = end + s_.costs.lan;
      return;
    }
    const auto share = gpu / s_.stages / (shared_ ? s_.pipelines_per_cell() : 1);
    hops_[{share, after, back}].waiting.push_back({end, x.turn, to, x.microbatch, back});
  }

  void cross(shared_hop& d, double at) {
    auto first = d.waiting.end();
    for (auto t = d.waiting.begin(); t != d.waiting.end(); ++t)
      if (t->ready <= at + tiny && (first == d.waiting.end() || t->rank < first->rank)) first = t;
    const auto t = *first;
    d.waiting.erase(first);
    d.free = at + s_.costs.wan / (shared_ ? s_.pipelines_per_cell() : 1);
    arrives_[{t.to, t.microbatch, t.back}] = d.free + s_.costs.wan_latency;
  }

  using what = std::tuple<std::uint32_t, std::uint32_t, bool>;
  const pipeline_shape& s_;
  const orders& o_;
  bool shared_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;
  std::map<what, double> arrives_;   // at a GPU, by micro-batch and direction
  std::map<what, shared_hop> hops_;  // by cell, hop and direction
  double length_ = 0;
};

/// Does the plan keep every rule of its shape? Each of its fields is checked.
void check_rules(const pipeline_schedule& plan) {
  const auto& s = plan.shape;
  const auto& c = s.costs;
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool, std::uint32_t>, wan_transfer> crossing;
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, double> free_at;
  const auto share = plan.shares_wan ? s.pipelines_per_cell() : 1;
  for (const auto& t : plan.transfers) {
    crossing[{t.pipeline, t.stage, t.backward, t.microbatch}] = t;
    auto& free = free_at[{t.pipeline / share, t.stage, t.backward}];
    CHECK(t.begin >= free - tiny);  // one at a time
    free = t.end;
    const auto cell = t.pipeline / share * share;
    const auto nodes = std::min(share, s.pipelines - cell);
    CHECK(t.end - t.begin == Approx(c.wan / nodes).margin(tiny));
  }
  double length = 0;
  std::uint32_t max_in_flight = 0;
  for (std::uint32_t p = 0; p < s.pipelines; ++p)
    for (std::uint32_t i = 0; i < s.stages; ++i) {
      const auto ended = [&](std::uint32_t stage, std::uint32_t m, stage_task::kind what) {
        for (const auto& t : plan.of(p, stage))
          if (t.what == what && t.microbatch == m) return t.end;
        return 1e300;
      };
      double free = 0;
      std::uint32_t forwards = 0, backwards = 0, held = 0;
      const auto& tasks = plan.of(p, i);
      REQUIRE(tasks.size() == (s.recomputes(i) ? 3 : 2) * s.microbatches);
      for (std::size_t k = 0; k < tasks.size(); ++k) {
        const auto& t = tasks[k];
        CHECK(t.begin >= free - tiny);
        free = t.end;
        const auto takes = s.at(i);
        CHECK(t.end - t.begin == Approx(t.what == stage_task::kind::forward     ? takes.forward
                                        : t.what == stage_task::kind::recompute ? takes.recompute
                                                                                : takes.backward)
                                     .margin(tiny));
        length = std::max(length, t.end);
        const bool back = t.what != stage_task::kind::forward;
        if (t.what == stage_task::kind::recompute) {  // rule 4
          REQUIRE(k + 1 < tasks.size());
          CHECK(tasks[k + 1].what == stage_task::kind::backward);
          CHECK(tasks[k + 1].microbatch == t.microbatch);
          continue;
        }
        CHECK(t.microbatch == (back ? backwards : forwards)++);
        if (!back)
          max_in_flight = std::max(max_in_flight, ++held);
        else
          --held;
        if (back ? i + 1 == s.stages : i == 0) {
          if (back) CHECK(t.begin >= ended(i, t.microbatch, stage_task::kind::forward) - tiny);
          continue;
        }
        const auto from = back ? i + 1 : i - 1, after = std::min(i, from);
        double arrives = ended(from, t.microbatch, t.what);
        if (s.is_wan(after)) {
          const auto& x = crossing.at({p, after, back, t.microbatch});
          CHECK(x.begin >= arrives - tiny);
          arrives = x.end + c.wan_latency;
        } else {
          arrives += c.lan;
        }
        CHECK(t.begin >= arrives - tiny);
      }
      CHECK(forwards == s.microbatches);
      CHECK(backwards == s.microbatches);
    }
  CHECK(plan.length == Approx(length));
  CHECK(plan.max_in_flight == max_in_flight);
  if (s.max_in_flight) CHECK(max_in_flight <= *s.max_in_flight);
}

/// Calls with every order of forwards and backwards of one stage.
void each_order(std::uint32_t microbatches, bool keeps, std::vector<stage_step> made,
                std::uint32_t forwards, std::uint32_t backwards,
                const std::function<void(const std::vector<stage_step>&)>& call) {
  using kind = stage_step::kind;
  if (backwards == microbatches) return call(made);
  if (forwards < microbatches) {
    auto next = made;
    next.push_back({kind::forward, forwards, 0});
    each_order(microbatches, keeps, std::move(next), forwards + 1, backwards, call);
  }
  if (backwards < forwards) {
    if (!keeps) made.push_back({kind::recompute, backwards, 0});
    made.push_back({kind::backward, backwards, 0});
    each_order(microbatches, keeps, std::move(made), forwards, backwards + 1, call);
  }
}

/// The shortest of all orders and all ranks, by trying them.
class all_orders {
 public:
  all_orders(const pipeline_shape& s, bool shared) : s_{s}, shared_{shared} {
    orders_.resize(std::size_t{s.pipelines} * s.stages);
    std::vector<bool> sequence;  // who sends, of two pipelines
    for (std::uint32_t i = 0; i < 2 * s.microbatches; ++i) sequence.push_back(i >= s.microbatches);
    do sequences_.push_back(sequence);
    while (shared && s.pipelines == 2 && std::next_permutation(sequence.begin(), sequence.end()));
  }

  double shortest() {
    stage(0);
    return shortest_;
  }

 private:
  void stage(std::size_t gpu) {
    if (gpu == orders_.size()) return hop(0);
    const auto i = gpu % s_.stages;
    each_order(s_.microbatches, !s_.recomputes(i), {}, 0, 0, [&](const auto& made) {
      std::uint32_t held = 0, max = 0;
      for (const auto& x : made) {
        if (x.what == stage_step::kind::forward) max = std::max(max, ++held);
        if (x.what == stage_step::kind::backward) --held;
      }
      if (s_.max_in_flight && max > *s_.max_in_flight) return;
      orders_[gpu] = made;
      stage(gpu + 1);
    });
  }

  void hop(std::uint32_t which) {
    if (which == 2 * s_.stages) {
      const auto length = crew{s_, orders_, shared_}.run();
      if (length > 0) shortest_ = std::min(shortest_, length);
      return;
    }
    const auto after = which / 2;
    const bool back = which % 2 == 1;
    if (!s_.is_wan(after)) return hop(which + 1);
    for (const auto& sequence : sequences_) {
      for (std::uint32_t p = 0; p < s_.pipelines; ++p)
        for (auto& x : orders_[p * s_.stages + after + (back ? 1 : 0)])
          if (x.what == (back ? stage_step::kind::backward : stage_step::kind::forward))
            x.turn = place(sequence, p == 1, x.microbatch);
      hop(which + 1);
    }
  }

  static std::uint32_t place(const std::vector<bool>& sequence, bool who, std::uint32_t m) {
    std::uint32_t i = 0;
    for (;; ++i)
      if (sequence[i] == who && m-- == 0) return i;
  }

  const pipeline_shape& s_;
  bool shared_;
  orders orders_;
  std::vector<std::vector<bool>> sequences_;
  double shortest_ = 1e300;
};

}  // namespace

TEST_CASE("schedule best is valid and never beaten, and no schedule is shorter than the bound") {
  random_source random{3};
  int searched = 0;
  for (int i = 0; i < 250; ++i) {
    const auto s = random_shape(random, 7, 4, 9);
    const auto best = schedule_pipeline(s, "best");
    REQUIRE(best);
    INFO("case " << i << ": " << s.stages << " stages, " << s.pipelines << " pipelines, "
                 << s.microbatches << " micro-batches, " << best->made_by);
    check_rules(*best);
    CHECK(best->length >= pipeline_lower_bound(s) - tiny);
    for (const auto name : schedule_names)
      CHECK(best->length <= length_of(s, name) + (name == "best" ? 0 : tiny));
    searched += best->made_by.ends_with("searched");
  }
  CHECK(searched > 50);
}

TEST_CASE("executing the orders of a searched schedule takes its length") {
  random_source random{5};
  int searched = 0;
  for (int i = 0; i < 300; ++i) {
    const auto s = random_shape(random, 6, 3, 8);
    const auto best = schedule_pipeline(s, "best");
    REQUIRE(best);
    if (!best->made_by.ends_with("searched")) continue;
    ++searched;
    INFO("case " << i << ": " << best->made_by);
    const auto orders = stage_orders(*best);
    CHECK(crew{s, orders, best->shares_wan}.run() == Approx(best->length).epsilon(1e-9));
  }
  CHECK(searched > 30);
}

TEST_CASE("on tiny pipelines schedule best is as short as the shortest of all orders, or nearly") {
  random_source random{9};
  int same = 0, all = 0;
  for (int i = 0; i < 60; ++i) {
    const bool two = i % 3 == 0;
    auto s = two ? random_shape(random, 3, 2, 2) : random_shape(random, 3, 1, 4);
    s.pipelines = two ? 2 : 1;
    s.cell = 0;
    if (s.stages == 3 && s.microbatches > 3) s.microbatches = 3;
    if (two && s.stages == 3) s.stages_of_datacenter = {1, 2};
    double shortest = all_orders{s, false}.shortest();
    if (two) shortest = std::min(shortest, all_orders{s, true}.shortest());
    const auto best = length_of(s, "best");
    INFO("case " << i << ": " << s.stages << " stages, " << s.microbatches << " micro-batches");
    CHECK(best >= shortest - tiny);
    CHECK(pipeline_lower_bound(s) <= shortest + tiny);
    CHECK(best <= 1.02 * shortest);
    same += best <= shortest + tiny;
    ++all;
  }
  CHECK(same >= all - 3);
}

TEST_CASE("schedule best is a function of the pipeline's shape") {
  random_source random{13};
  for (int i = 0; i < 30; ++i) {
    const auto s = random_shape(random, 6, 3, 8);
    const auto one = schedule_pipeline(s, "best"), two = schedule_pipeline(s, "best");
    REQUIRE(one);
    CHECK(one->tasks == two->tasks);
    CHECK(one->transfers == two->transfers);
    CHECK(one->made_by == two->made_by);
  }
}
