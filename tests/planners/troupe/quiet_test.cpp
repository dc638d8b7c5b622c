// Troupe's policy leaves jobs alone while nothing happens.

#include <catch2/catch.hpp>

#include <algorithm>

#include "planners/scene.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::restart_s;
using scene_of_policies::scene;
using scene_of_policies::settling_s;

namespace {

/// Jobs that wait and run in a cluster, as a scheduler shows them to a policy.
class still_world {
 public:
  explicit still_world(std::uint64_t seed) : random_{seed}, s_{sample::random_cluster(random_)} {
    s_.cluster.settings.restart_s = restart_s;
    s_.by = by_.get();
    const auto jobs = 1 + random_.below(12);
    for (job_id id = 1; id <= jobs; ++id) {
      auto spec = sample::job(random_.chance(0.7) ? sample::gpt2_350m : sample::gpt2_7b,
                              8U << random_.below(4));
      spec.iterations = 4000 + random_.below(random_.chance(0.5) ? 40'000 : 800'000);
      if (random_.chance(0.1)) spec.priority = 1;
      auto& j = s_.add(id, spec);
      j.submitted_s = s_.now_s - double(random_.below(600));
      if (j.plans->empty()) s_.waiting.erase(id);
    }
    run_some();
    if (random_.chance(0.3)) remember_arrivals();
    changed_s_ = s_.now_s;
  }

  std::vector<decision> decide() {
    random_source own{1};
    return by_->decide(view(), own);
  }
  void carry(const std::vector<decision>& d) {
    carry_out(s_, d);
    if (!d.empty()) changed_s_ = s_.now_s;
    for (auto& [id, j] : s_.running) j.iteration_s = j.spec->global_batch / j.how.samples_per_s;
  }
  void wait(double seconds) { s_.now_s += seconds; }
  double again_s() const { return by_->decide_again_s(view()); }
  double uniform(double limit) { return limit * random_.uniform(); }

  /// Seconds until a running job ends or a waiting one becomes overdue, whichever is first.
  double next_event_s() const {
    double next_s = 1e9;
    for (const auto& [id, j] : s_.running)
      next_s = std::min(next_s, j.started_s + restart_s + left(j) * j.iteration_s - s_.now_s);
    for (const auto* views : {&s_.waiting, &s_.running})
      for (const auto& [id, j] : *views) {
        double fastest = 0;
        for (const auto& p : *j.plans) fastest = std::max(fastest, p.samples_per_s);
        const double run_s = double(j.spec->iterations) * j.spec->global_batch / fastest;
        // A plan's speed is within a tenth of its configuration's.
        for (const double factor : {0.9, 1.1}) {
          const double overdue_s = factor * troupe_options{}.overdue_times * run_s;
          const double at_s = j.submitted_s + overdue_s - s_.now_s;
          if (at_s > 0) next_s = std::min(next_s, at_s);
        }
      }
    return next_s;
  }

 private:
  snapshot view() const {
    auto v = s_.view();
    v.changed_s = changed_s_;
    v.arrivals = arrivals_;
    return v;
  }
  static double left(const job_view& j) {
    return std::max(1.0, double(j.spec->iterations) - double(j.progress.iterations_done));
  }
  /// Some of the jobs run, with plans of their own on whatever is idle.
  void run_some() {
    job_views waiting = s_.waiting;
    for (auto& [id, j] : waiting) {
      if (!random_.chance(0.5)) continue;
      const auto& how = (*j.plans)[random_.below(j.plans->size())];
      allocation where;
      for (node_index n = 0; n < s_.cluster.nodes.size() && where.empty(); ++n)
        if (s_.idle.idle(n) >= how.gpus() && how.stages.empty() &&
            s_.cluster.gpu_of(n).memory_bytes() > how.bytes_per_gpu)
          where = {{n, how.gpus()}};
      if (where.empty() || !fits(s_.cluster, s_.idle, how, where)) continue;
      carry({{decision::kind::start, id, how, where, {}}});
      auto& now = s_.running.at(id);
      now.started_s = s_.now_s - settling_s - double(random_.below(600));
      now.progress.iterations_done = random_.below(now.spec->iterations);
    }
  }
  void remember_arrivals() {
    for (const auto* views : {&s_.waiting, &s_.running})
      for (const auto& [id, j] : *views) arrivals_.push_back({j.submitted_s, j.spec, j.plans});
    std::ranges::sort(arrivals_, {}, &planners::recent_arrival::at_s);
  }

  std::shared_ptr<const policy> by_{make_policy("troupe")};
  random_source random_;
  scene s_;
  std::vector<planners::recent_arrival> arrivals_;
  double changed_s_ = 0;
};

}  // namespace

TEST_CASE(
    "Troupe's policy is quiet after at most three calls, and stays so until something happens") {
  std::size_t calls = 0, changes = 0, looks = 0;
  for (std::uint64_t seed = 1; seed <= 10'000; ++seed) {
    CAPTURE(seed);
    still_world w{seed};
    int noisy = 0;
    bool quiet = false;
    while (!quiet && w.next_event_s() > settling_s) {
      const auto d = w.decide();
      ++calls;
      changes += d.size();
      if (!d.empty()) REQUIRE(++noisy <= 3);
      w.carry(d);
      const double again_s = w.again_s();  // when the last job that was started is settled
      quiet = d.empty() && again_s == 0;
      w.wait(again_s);
    }
    const double until_s = quiet ? w.next_event_s() : 0;
    for (int i = 0; i < 20 && until_s > 0; ++i) {
      auto later = w;
      later.wait(w.uniform(until_s));
      ++looks;
      REQUIRE(later.decide().empty());
    }
  }
  CHECK(calls > 10'000);
  CHECK(changes > 10'000);
  CHECK(looks > 50'000);
}
