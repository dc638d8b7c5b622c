// Rule 2 of docs/planners/troupe.md: a job that could start waits for GPUs that running jobs
// release soon.

#include <catch2/catch.hpp>

#include <cmath>
#include <optional>

#include "harness/facts.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/scene.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::played_policy;
using scene_of_policies::restart_s;

namespace {

constexpr double max_wait_s = troupe_options{}.settle_starts * restart_s;

/// A fast GPU, on which job 1 runs, and an idle slow one.
struct two_gpus {
  played_policy x;

  explicit two_gpus(double until_release_s) : x{fast_and_slow(), "troupe"} {
    x.s.add(1, job_of(20'000));
    x.settle();
    REQUIRE(x.type(1) == "A100-80GB");
    auto& j = x.s.running.at(1);
    j.iteration_s = j.spec->global_batch / j.how.samples_per_s;
    const double whole_s = double(j.spec->iterations) * j.iteration_s;
    x.s.now_s = j.started_s + restart_s + whole_s - until_release_s;
    REQUIRE(x.s.now_s > j.started_s + 2 * max_wait_s);
  }

  /// Job 2 arrives, with so much to do on the fast GPU.
  void add(double fast_s) {
    const auto& fast = x.s.running.at(1);
    x.s.add(2, job_of(std::uint64_t(fast_s / fast.iteration_s))).submitted_s = x.s.now_s;
    changed_s_ = x.s.now_s;
  }
  /// Nothing happens: the job on the fast GPU is late, if it should have ended.
  void wait(double seconds) { x.s.now_s += seconds; }
  /// Something happens that concerns neither job.
  void report() { changed_s_ = x.s.now_s; }

  std::optional<std::string> started_on() {
    random_source r{1};
    for (const auto& d : x.by->decide(view(), r))
      if (d.what == decision::kind::start && d.job == 2)
        return x.s.cluster.gpu_of(d.where.at(0).node).name;
    return {};
  }
  double again_s() { return x.by->decide_again_s(view()); }
  std::string why() { return x.by->why_waiting(view(), 2).text; }

 private:
  static cluster fast_and_slow() {
    cluster c;
    sample::add_nodes(c, sample::a100_80, 1, 1);
    sample::add_nodes(c, sample::rtx6000, 1, 1);
    c.settings.restart_s = restart_s;
    return c;
  }
  static job_spec job_of(std::uint64_t iterations) {
    auto job = sample::job(sample::gpt2_350m, 8);
    job.iterations = iterations;
    return job;
  }
  snapshot view() const {
    auto v = x.s.view();
    v.changed_s = changed_s_;
    return v;
  }
  std::optional<double> changed_s_;
};

}  // namespace

TEST_CASE("a job that could start on a slow GPU waits for a fast one that is soon released") {
  two_gpus x{100};
  x.add(3000);
  CHECK_FALSE(x.started_on());
  CHECK(troupe::test::has_facts(x.why(), {"could start now", "1 A100-80GB", "release in 100 s",
                                          "in 600 s it no longer waits"}));
  x.wait(40);
  CHECK_FALSE(x.started_on());
  CHECK(troupe::test::has_facts(x.why(), {"release in 60 s", "in 560 s"}));
}

TEST_CASE("a job does not wait for GPUs that are released too late for it") {
  two_gpus late{max_wait_s + 10};
  late.add(3000);
  CHECK(late.started_on() == "RTX6000");
  two_gpus small{100};
  small.add(20);  // it ends on the slow one before the fast one is released
  CHECK(small.started_on() == "RTX6000");
}

TEST_CASE("a job that waits for late GPUs starts on others once it has waited long enough") {
  for (const bool reports : {false, true}) {
    CAPTURE(reports);
    two_gpus x{100};
    x.add(3000);
    REQUIRE_FALSE(x.started_on());
    CHECK(x.again_s() == Approx(max_wait_s));
    x.wait(max_wait_s - 1);
    if (reports) x.report();  // the release is expected anew, at any moment
    CHECK_FALSE(x.started_on());
    CHECK(x.again_s() == Approx(1));
    x.wait(1);
    if (reports) x.report();
    CHECK(x.started_on() == "RTX6000");
  }
}

TEST_CASE("a job that waits for late GPUs starts on others when it is overdue") {
  two_gpus x{100};
  x.add(300);
  REQUIRE_FALSE(x.started_on());
  const double again_s = x.again_s();
  CHECK(again_s > 250);
  CHECK(again_s < 350);
  x.wait(again_s);
  CHECK(x.started_on() == "RTX6000");
}

TEST_CASE("when a job has waited long enough does not depend on what was asked before") {
  two_gpus used{100}, fresh{100};
  used.add(3000);
  CHECK_FALSE(used.started_on());
  used.wait(50);
  fresh.add(3000);
  fresh.wait(50);
  CHECK(used.again_s() == fresh.again_s());  // neither has decided at this time
  CHECK(fresh.again_s() == Approx(max_wait_s - 50));
}
