// Programs whose files permit that policies stop, resize and move them, and programs whose do not.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "messages/domain/work_kind.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/progress.hpp"
#include "planners/sample.hpp"
#include "planners/scene.hpp"
#include "planners/variety.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::scene;

namespace {

job_spec program(std::uint32_t gpus = 1) {
  auto job = sample::job(sample::gpt2_small, 32, gpus);
  job.program.command = {"train"};
  return job;
}

job_view view(job_spec spec) {
  job_view j;
  j.id = 1;
  j.spec = std::make_shared<const job_spec>(std::move(spec));
  return j;
}

job_view elastic_view(elastic e = {}) {
  auto spec = program();
  spec.program.elastic = std::move(e);
  return view(std::move(spec));
}

void remember(job_view& j, elastic_record r) {
  j.elastic = std::make_shared<const elastic_record>(std::move(r));
}

elastic_record first(std::uint32_t gpus, std::string type, std::uint32_t tensor = 1) {
  elastic_record r;
  r.first_gpus = gpus;
  r.first_type = std::move(type);
  r.first_tensor_parallel = tensor;
  return r;
}

plan shape(std::uint32_t data, std::uint32_t tensor = 1) {
  plan p;
  p.data_parallel = data;
  p.tensor_parallel = tensor;
  return p;
}

cluster two_types() {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  sample::add_nodes(c, sample::rtx6000, 2, 4);
  return c;
}

/// The view as a policy gets it.
void show(const cluster& c, job_view& j) {
  j.plans = plans_of_elastic(c, j);
  j.spec = limits_of_elastic(j);
}

}  // namespace

TEST_CASE("a program can be resumed if its file says that it is elastic") {
  CHECK(!facts_of(program()).resumable);
  auto spec = program();
  spec.program.elastic.emplace();
  CHECK(facts_of(spec).resumable);
  CHECK(facts_of(sample::job(sample::gpt2_small, 32)).resumable);
}

TEST_CASE("an elastic program may have the numbers, types and layouts of its file") {
  const std::string a = "A100-40GB", b = "RTX6000";
  CHECK(may_have(view(program()), shape(64, 8), a));

  elastic e;
  e.min_gpus = 2;
  e.max_gpus = 4;
  e.types = {a};
  auto j = elastic_view(e);
  CHECK(!may_have(j, shape(1), a));
  CHECK(may_have(j, shape(2), a));
  CHECK(may_have(j, shape(4), a));
  CHECK(!may_have(j, shape(5), a));
  CHECK(!may_have(j, shape(2), b));

  e = {};
  e.same_gpus = e.same_types = true;
  j = elastic_view(e);
  CHECK(may_have(j, shape(3), b));  // the first attempt may have any
  remember(j, first(2, a));
  CHECK(may_have(j, shape(2), a));
  CHECK(!may_have(j, shape(4), a));
  CHECK(!may_have(j, shape(2), b));

  j = elastic_view();
  remember(j, first(2, a, 2));
  CHECK(may_have(j, shape(2, 2), b));
  CHECK(!may_have(j, shape(4), a));
  e = {};
  e.any_layout = true;
  j = elastic_view(e);
  remember(j, first(2, a, 2));
  CHECK(may_have(j, shape(4), a));
}

TEST_CASE("a program's first layout is data parallel, unless no GPU holds its model alone") {
  auto j = elastic_view();
  j.plans = std::make_shared<const std::vector<plan>>(std::vector{shape(2), shape(1, 2)});
  CHECK(may_have(j, shape(2), "A"));
  CHECK(!may_have(j, shape(1, 2), "A"));
  j.plans = std::make_shared<const std::vector<plan>>(std::vector{shape(1, 2), shape(1, 4)});
  CHECK(may_have(j, shape(1, 2), "A"));
}

TEST_CASE("a restart costs the median of the measured ones, or else the figures of the job file") {
  auto c = two_types();
  c.settings.restart_s = 30;
  CHECK(restart_of(c, view(program())) == 30);
  CHECK(restart_of(c, elastic_view()) == 30);
  elastic e;
  e.start_s = 8;
  e.save_s = 2;
  auto j = elastic_view(e);
  CHECK(start_of(c, j) == 8);
  CHECK(restart_of(c, j) == 10);
  elastic_record r;
  r.costs.starts_s = {100, 5, 6};
  remember(j, r);
  CHECK(restart_of(c, j) == 6 + 2);
  r.costs.saves_s = {1, 50, 3};
  remember(j, r);
  CHECK(start_of(c, j) == 6);
  CHECK(restart_of(c, j) == 6 + 3);
}

TEST_CASE("a speed is measured, else the file's, else the estimate times the nearest ratio") {
  const auto c = two_types();
  const std::string a = c.gpus[0].name, b = c.gpus[1].name;
  const auto estimated = [&](gpu_index g, std::uint32_t n) {
    return estimate_iteration(c, program(), shape(n), pack(c, nodes_of_type(c, g), n))
        .samples_per_s;
  };
  CHECK(program_speeds(c, elastic_view()).rate_of(shape(2), a, 10) == 10);
  CHECK(program_speeds(c, view(program())).rate_of(shape(2), a, 10) == 10);

  elastic e;
  e.rates = {{a, 1, 0, 2 * estimated(0, 1)}, {a, 8, 8, 8 * estimated(0, 8)}};
  auto j = elastic_view(e);
  {
    const program_speeds s{c, j};
    CHECK(s.rate_of(shape(1), a, 10) == 2 * estimated(0, 1));
    CHECK(s.rate_of(shape(2), a, 10) == Approx(20));  // nearer to 1 than to 8
    CHECK(s.rate_of(shape(4), a, 10) == Approx(80));
    CHECK(s.rate_of(shape(1, 8), a, 10) == Approx(80));  // another layout of as many
    CHECK(s.rate_of(shape(2), b, 10) == Approx(40));     // the geometric mean of 2 and 8
  }
  elastic_record r;
  r.costs.rates = {{a, 1, 1, 3 * estimated(0, 1)}};
  remember(j, r);
  CHECK(program_speeds(c, j).rate_of(shape(1), a, 10) == 3 * estimated(0, 1));
  CHECK(program_speeds(c, j).rate_of(shape(2), a, 10) == Approx(30));
  CHECK(program_speeds(c, j).rate_of(shape(8), a, 10) == 8 * estimated(0, 8));
}

TEST_CASE("a speed that was measured where the estimate is a guess corrects other guesses alone") {
  auto c = two_types();
  sample::add_nodes(c, sample::rtx2080ti, 1, 4);
  for (auto& gpu : c.gpus) gpu.kernel_us = 50;
  const auto name = [&](gpu_index g) { return c.gpus[g].name; };
  const auto speed_of = [&](gpu_index measured, gpu_index asked) {
    elastic e;
    e.rates = {{name(measured), 1, 0, 0}};
    e.rates[0].samples_per_s = estimated_rate(c, program(), e.rates[0]) / 4;
    return program_speeds{c, elastic_view(e)}.rate_of(shape(2), name(asked), 10);
  };
  CHECK(speed_of(0, 1) == Approx(2.5));
  c.gpus[0].source = "a data sheet; efficiency: assumed";
  CHECK(speed_of(0, 0) == Approx(2.5));
  CHECK(speed_of(0, 1) == 10);
  CHECK(speed_of(1, 0) == Approx(2.5));
  c.gpus[2].source = c.gpus[0].source;
  CHECK(speed_of(0, 2) == Approx(2.5));
  c.gpus[0].kernel_us = 0;  // whole trainings were measured
  CHECK(speed_of(0, 1) == Approx(2.5));
}

TEST_CASE("a measured speed is counted once: in the plans, not as a slowdown") {
  const auto c = two_types();
  auto j = elastic_view();
  j.iteration_s = 1;
  j.reported = reported_progress{1, 0, 4};
  CHECK(measured_slowdown(j) == 4);
  elastic_record r;
  r.costs.rates = {{c.gpus[0].name, 1, 1, 8}};
  remember(j, r);
  CHECK(measured_slowdown(j) == 1);
  const auto e = estimate_start(c, j, shape(1), {{0, 1}});
  CHECK(e.iteration_s == 32.0 / 8);
}

TEST_CASE("plans of an elastic program are for one type each, with its speed and within limits") {
  const auto c = two_types();
  elastic e;
  e.max_gpus = 2;
  auto j = elastic_view(e);
  elastic_record r;
  r.costs.rates = {{c.gpus[1].name, 1, 1, 1234}};
  remember(j, r);
  auto p = shape(1);
  p.gpu_types = {0, 1};
  p.samples_per_s = 1;
  auto large = shape(4);
  large.gpu_types = {0, 1};
  j.plans = std::make_shared<const std::vector<plan>>(std::vector{p, large});
  const auto plans = plans_of_elastic(c, j);
  REQUIRE(plans->size() == 2);
  CHECK((*plans)[0].gpu_types == std::vector<gpu_index>{0});
  CHECK((*plans)[1].gpu_types == std::vector<gpu_index>{1});
  CHECK((*plans)[1].samples_per_s == 1234);

  auto other = view(program());
  other.plans = j.plans;
  CHECK(plans_of_elastic(c, other) == j.plans);
  CHECK(limits_of_elastic(other) == other.spec);
}

namespace {

elastic random_limits(random_source& r) {
  elastic e;
  if (r.chance(0.3)) e.same_gpus = true;
  if (!e.same_gpus && r.chance(0.4)) e.max_gpus = 2U << r.below(3);
  e.same_types = r.chance(0.3);
  e.any_layout = r.chance(0.3);
  if (r.chance(0.5)) e.start_s = 1 + double(r.below(20));
  return e;
}

/// Programs, and simulated work that competes with them.
class program_world {
 public:
  program_world(const policy& by, std::uint64_t seed, bool elastic)
      : by_{by}, elastic_{elastic}, random_{seed}, s_{sample::random_cluster(random_, 3)} {
    s_.by = &by;
  }

  /// Requires of the decisions what jobs permit. Returns how many stopped or moved a program.
  std::size_t play() {
    arrive();
    auto own = random_;
    auto decisions = by_.decide(s_.view(), own);
    // Unions and followers are simulated work's alone.
    for (const auto& d : decisions)
      for (const auto id : d.with) REQUIRE(!facts_of(*view_of(s_.view(), id)->spec).has_processes);
    std::erase_if(decisions, [](const decision& d) { return d.after || !d.with.empty(); });
    std::size_t changes = 0;
    for (const auto& d : decisions) changes += check(d);
    carry_out(s_, decisions);
    for (auto& [id, j] : s_.running)
      if (j.started_s == s_.now_s) started(j);
    end_some();
    s_.now_s += 1000;
    for (auto* views : {&s_.waiting, &s_.running})
      for (auto& [id, j] : *views) refresh(j);
    return changes;
  }

 private:
  void arrive() {
    const auto arrivals = 1 + random_.below(4);
    for (std::uint64_t k = 0; k < arrivals; ++k) {
      auto spec = sample::job(random_.chance(0.7) ? sample::gpt2_small : sample::gpt2_350m,
                              8U << random_.below(3), 1U << random_.below(3));
      spec.iterations = 1000 + random_.below(random_.chance(0.5) ? 2000 : 500'000);
      if (random_.chance(0.6)) spec.program.command = {"train"};
      auto limits = random_limits(random_);
      if (limits.max_gpus > 0) spec.request.gpus = std::min(spec.request.gpus, limits.max_gpus);
      if (elastic_ && facts_of(spec).has_processes) spec.program.elastic = std::move(limits);
      if (random_.chance(0.1)) spec.priority = 1;
      auto& j = s_.add(++last_, spec);
      j.submitted_s = s_.now_s;
      raw_[last_] = {j.spec, j.plans};
      refresh(j);
    }
  }

  void refresh(job_view& j) {
    std::tie(j.spec, j.plans) = raw_.at(j.id);
    show(s_.cluster, j);
  }

  std::size_t check(const decision& d) const {
    const auto* j = view_of(s_.view(), d.job);
    REQUIRE(j);
    if (!facts_of(*j->spec).has_processes || d.what == decision::kind::give_up) return 0;
    INFO("job " << d.job);
    const bool runs = !j->where.empty();
    if (!elastic_) REQUIRE(!runs);
    if (elastic_ && d.starts())
      for (const auto& share : d.where)
        REQUIRE(may_have(*j, d.how, s_.cluster.gpu_of(share.node).name));
    return runs;
  }

  void started(job_view& j) {
    j.iteration_s = j.spec->global_batch / std::max(1e-3, j.how.samples_per_s);
    if (!facts_of(*j.spec).elastic) return;
    auto r = j.elastic ? *j.elastic : elastic_record{};
    const auto& type = s_.cluster.gpu_of(j.where.front().node).name;
    if (r.first_gpus == 0) {
      r.first_gpus = total_gpus(j.where);
      r.first_type = type;
      r.first_tensor_parallel = j.how.tensor_parallel;
    }
    r.costs.starts_s = {1 + double(random_.below(20))};
    r.costs.rates.push_back({type, total_gpus(j.where), j.how.data_parallel,
                             std::max(1e-3, j.how.samples_per_s) * (0.3 + 3 * random_.uniform())});
    remember(j, std::move(r));
  }

  void end_some() {
    for (auto it = s_.running.begin(); it != s_.running.end();) {
      if (!random_.chance(0.3)) {
        ++it;
        continue;
      }
      for (const auto& share : it->second.where)
        s_.idle.set_idle(share.node, s_.idle.idle(share.node) + share.gpus);
      it = s_.running.erase(it);
    }
  }

  using submitted =
      std::tuple<std::shared_ptr<const job_spec>, std::shared_ptr<const std::vector<plan>>>;

  const policy& by_;
  bool elastic_;
  random_source random_;
  scene s_;
  job_id last_ = 0;
  std::map<job_id, submitted> raw_;
};

}  // namespace

TEST_CASE("policies stop and move elastic programs alone, and give them only what they may have") {
  const std::set<std::string_view> changing{"troupe", "sia",     "gavel",          "gavel-fair",
                                            "crius",  "gandiva", "elasticflow-ls", "tiresias"};
  for (const auto name : policy_names())
    for (const bool elastic : {false, true}) {
      DYNAMIC_SECTION(name << (elastic ? ", elastic" : ", not elastic")) {
        const auto by = with_trainings(make_policy(name));
        std::size_t changes = 0;
        for (std::uint64_t seed = 1; seed <= 100; ++seed) {
          CAPTURE(seed);
          program_world w{*by, seed, elastic};
          for (int step = 0; step < 5; ++step) changes += w.play();
        }
        if (!elastic) CHECK(changes == 0);
        if (elastic && changing.contains(name)) CHECK(changes > 0);
      }
    }
}

namespace {

/// Runs alone on the type that is estimated faster; with its speeds known, or not.
std::string type_after_rounds(std::string_view name, bool known) {
  scene s{two_types()};
  const auto by = make_policy(name);
  s.by = by.get();
  auto spec = program();
  spec.iterations = 10'000'000;
  spec.global_batch = 8;  // fits either type
  spec.program.elastic = elastic{};
  spec.program.elastic->max_gpus = 1;
  spec.program.elastic->start_s = 10;
  const auto& slow = s.cluster.gpus[0].name;
  const auto& fast = s.cluster.gpus[1].name;  // estimated slower
  auto& j = s.add(1, spec);
  j.submitted_s = 0;
  const auto plans = j.plans;
  plan how = shape(1);
  for (const auto& p : *plans)
    if (p.gpus() == 1) how = p;
  how.gpu_types = {0};
  carry_out(s, {start_job(1, how, {{0, 1}})});
  auto& running = s.running.at(1);
  running.started_s = 0;
  auto r = first(1, slow);
  r.costs.starts_s = {10};
  r.costs.rates = {{slow, 1, 1, 50}};
  if (known) r.costs.rates.push_back({fast, 1, 1, 100});
  remember(running, std::move(r));
  running.iteration_s = 8.0 / 50;
  random_source random{1};
  for (int round = 0; round < 3; ++round) {
    auto& now = s.running.at(1);
    now.progress.iterations_done = static_cast<std::uint64_t>(s.now_s);
    now.plans = plans;
    show(s.cluster, now);
    carry_out(s, by->decide(s.view(), random));
    s.now_s += std::max(360.0, by->traits().round_s);
  }
  return s.cluster.gpu_of(s.running.at(1).where.front().node).name;
}

}  // namespace

TEST_CASE("a program that is known to be twice as fast on another type is moved there") {
  for (const auto* name : {"troupe", "sia", "gavel", "gavel-fair", "crius"}) DYNAMIC_SECTION(name) {
      CHECK(type_after_rounds(name, true) == sample::rtx6000.name);
      CHECK(type_after_rounds(name, false) == sample::a100_40.name);
    }
}

TEST_CASE("a job alone on an idle cluster starts within an hour or is refused") {
  for (const auto name : policy_names()) {
    const auto by = with_trainings(make_policy(name));
    std::size_t started = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
      INFO(name << ", seed " << seed);
      random_source r{seed};
      auto c = variety::some_cluster(r, 6);
      if (seed % 2 == 0) c.wan.clear();  // its datacenters are apart
      scene s{std::move(c)};
      s.by = by.get();
      auto spec = variety::some_program(r, s.cluster);
      const auto kind = r.below(3);
      if (kind > 0) spec.program.command = {"train"};
      if (kind > 1) spec.program.elastic = random_limits(r);
      if (spec.program.elastic && spec.program.elastic->max_gpus > 0)
        spec.request.gpus = std::min(spec.request.gpus, spec.program.elastic->max_gpus);
      auto& j = s.add(1, spec);
      j.submitted_s = s.now_s;
      show(s.cluster, j);
      const double until_s = s.now_s + 3600;
      for (; !s.waiting.empty() && s.now_s <= until_s;
           s.now_s += std::max(60.0, by->traits().round_s))
        carry_out(s, by->decide(s.view(), r));
      REQUIRE(s.waiting.empty());
      started += s.running.size();
    }
    CHECK(started > 50);
  }
}
