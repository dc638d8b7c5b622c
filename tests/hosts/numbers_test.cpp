#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "actors/control/ledger/bounded_reports.hpp"
#include "actors/control/ledger/elastic_attempts.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "actors/control/ledger/progress_report.hpp"
#include "actors/node/program_files.hpp"
#include "harness/small_cluster.hpp"
#include "messages/admission/measured.hpp"
#include "planners/baselines/gavel.hpp"
#include "planners/baselines/sia.hpp"
#include "planners/crius/crius_search.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/solver/linear_program.hpp"
#include "planners/titan/titan_problem.hpp"

// Numbers that programs, trainers and nodes measure, from the report to the solver.

using namespace troupe;
using namespace troupe::actors;
using planners::linear_program;
using planners::linear_solver;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();
/// For no iteration.
const std::vector<double> no_steps{0, -1, 1e-12, 9e-7, 2e15, nan_value, infinite, -infinite};

job_spec elastic_job() {
  auto spec = harness::small_job("job", 100, 8);
  spec.program.command = {"train"};
  spec.program.elastic.emplace();
  return spec;
}

lease_record lease_on_two_gpus() {
  lease_record l;
  l.granted.lease = 7;
  l.granted.at_s = 1000;
  l.granted.how.data_parallel = 2;
  l.granted.parts = {{0, 1, {0, 1}}};
  return l;
}

part_report report_of(double step_s, std::uint64_t iteration = 50) {
  part_report r;
  r.lease = 7;
  r.program.emplace();
  r.program->iteration = iteration;
  r.program->step_s = step_s;
  return r;
}

}  // namespace

TEST_CASE("what a program writes into its report has a job file's bounds, or was not written") {
  for (const char* step : {"1e-12", "0.0000009", "-1", "nan", "inf", "1e16", "1e999"})
    CHECK(parse_program_report(fmt::format("step_s: 0.5\nstep_s: {}\n", step)).step_s == 0.5);
  for (const char* count : {"1000000000001", "-1", "1e300", "nan"}) {
    const auto r = parse_program_report(fmt::format(
        "iteration: 5\nsaved: 4\nresumed: 3\niterations: 2\niteration: {0}\nsaved: {0}\n"
        "resumed: {0}\niterations: {0}\n",
        count));
    CHECK(r.iteration == 5u);
    CHECK(r.saved == 4u);
    CHECK(r.resumed == 3u);
    CHECK(r.iterations == 2u);
  }
  CHECK(parse_program_report("peak_bytes: 1e9\npeak_bytes: 1e16\n").peak_bytes == 1e9);
  CHECK(parse_program_report("iteration: 1000000000000\nstep_s: 1e-6\n").step_s == 1e-6);
}

TEST_CASE("a node's numbers outside of a job file's bounds are no measurements") {
  for (const double step_s : no_steps) {
    node_report r;
    r.parts = {report_of(step_s, admission::max_iterations + 1)};
    auto& p = r.parts[0];
    p.iterations = admission::max_iterations + 1;
    p.peak_bytes = step_s == 0 ? 1e16 : -infinite;
    p.program->saved = p.program->resumed = p.program->last = ~std::uint64_t{0};
    p.program->loss = step_s > 0 ? 3.0 : nan_value;
    const auto kept = bounded(r).parts.at(0);
    CHECK(kept.program->step_s == 0);
    CHECK_FALSE(kept.program->iteration);
    CHECK_FALSE(kept.program->saved);
    CHECK_FALSE(kept.program->resumed);
    CHECK_FALSE(kept.program->last);
    CHECK(kept.program->loss.has_value() == (step_s > 0));
    CHECK(kept.iterations == 0);
    CHECK(kept.peak_bytes == 0);
  }
  node_report usual;
  usual.parts = {report_of(0.5)};
  usual.parts[0].peak_bytes = 8e9;
  CHECK(bounded(usual) == usual);
}

TEST_CASE("no rate beyond a job file's bounds is kept of an attempt, a running one or a journal") {
  for (const double step_s : no_steps) {
    elastic_record r;
    auto l = lease_on_two_gpus();
    l.program = program_end{40, false, 6.0, step_s, 40};
    add_attempt(r, elastic_job(), l, "A40", 1100, 40);
    CHECK(r.costs.rates.empty());
    const auto p = progress_of(l, 0, report_of(step_s, admission::max_iterations), 1000.5);
    CHECK((p.iteration_s == 0 || admission::is_step(p.iteration_s)));
  }
  // A step of a second is one, but not 10^13 samples of it.
  auto large = elastic_job();
  large.global_batch = 100'000'000;
  elastic_record r;
  auto l = lease_on_two_gpus();
  l.program = program_end{40, false, 6.0, 1e-5, 40};
  add_attempt(r, large, l, "A40", 1100, 40);
  CHECK(r.costs.rates.empty());
  l.program->step_s = 1.0;
  add_attempt(r, large, l, "A40", 1100, 40);
  CHECK(r.costs.rates.size() == 1);
  // The list has a job file's bound, too.
  for (std::uint16_t gpus = 1; gpus < 1200; ++gpus) {
    l.granted.parts = {{0, 1, std::vector<std::uint16_t>(gpus)}};
    add_attempt(r, large, l, "A40", 1100, 40);
  }
  CHECK(r.costs.rates.size() == admission::max_rates);
}

TEST_CASE("a rate that an older journal has is dropped where the journal is read") {
  ledger book{*harness::small_cluster()};
  snapshot_begun begin;
  begin.next_job = 2;
  REQUIRE(book.apply(begin));
  job_kept k;
  k.job = 1;
  k.spec = elastic_job();
  k.elastic.emplace();
  k.elastic->first_gpus = 1;
  k.peak_bytes = infinite;
  for (const double rate : {8e12, 1e300, infinite, nan_value, 0.0, -1.0, 80.0})
    k.elastic->costs.rates.push_back({"A40", 1, 1, rate});
  k.elastic->costs.starts_s = {nan_value, -1, 5};
  REQUIRE(book.apply(k));
  const auto& j = *book.job(1);
  CHECK(j.elastic->costs.rates == std::vector{program_rate{"A40", 1, 1, 80}});
  CHECK(j.elastic->costs.starts_s == std::vector{5.0});
  CHECK(j.peak_bytes == 0);
}

TEST_CASE("policies compute with no rate that a job file could not have") {
  const auto c = harness::small_cluster();
  planners::job_view v;
  auto spec = elastic_job();
  v.spec = std::make_shared<const job_spec>(spec);
  elastic_record r;
  r.first_gpus = 1;
  r.costs.rates = {{"A40", 1, 1, 8e12}, {"A40", 2, 2, infinite}, {"A40", 4, 4, 1e-300}};
  v.elastic = std::make_shared<const elastic_record>(r);
  plan how;
  CHECK(planners::program_speeds(*c, v).rate_of(how, "A40", 3) == 3);
}

TEST_CASE("the solver refuses a program with a number that is not finite, or beyond 1e20") {
  for (const double wrong : {1.1e20, -1e30, infinite, -infinite, nan_value}) {
    const auto refused = [&](double cost, double coefficient, double upper, double bound) {
      linear_program p;
      p.add_row(-linear_program::infinite, bound);
      p.add_column({{0, coefficient}}, cost, upper);
      const auto made = linear_solver::of(p, true);
      return !made && made.error().text.find("expected a finite number") != std::string::npos;
    };
    CHECK(refused(wrong, 1, 1, 10));
    CHECK(refused(-1, wrong, 1, 10));
    const bool is_bound = std::isinf(wrong);
    CHECK(refused(-1, 1, wrong, 10) != is_bound);
    CHECK(refused(-1, 1, 1, wrong) != is_bound);
    linear_program p;
    p.add_row(-linear_program::infinite, 10);
    p.add_column({{0, 1}}, -1, 3);
    auto solver = linear_solver::of(p, false);
    REQUIRE(solver);
    solver->relax();
    CHECK_FALSE(solver->add_column({{0, 1}}, wrong));
    CHECK_FALSE(solver->add_column({{0, wrong}}, 1));
    CHECK_FALSE(solver->add_row({wrong}, 0, 1));
    solver->relax();  // as if nothing had been added
    CHECK(solver->objective() == Approx(-3));
  }
}

TEST_CASE("a policy that solves a program goes on without a job of impossible numbers") {
  using namespace troupe::planners;
  for (const double wrong : {1.1e20, infinite, nan_value}) {
    std::vector<alike_choices> alike(2);
    for (auto& group : alike) {
      group.jobs = 1;
      group.choices.resize(1);
      group.choices[0].gpus = 1;
      group.choices[0].value = 5;
    }
    alike[0].choices[0].value = wrong;
    CHECK(solve_assignment(alike, {1}).taken == std::vector<std::vector<std::uint32_t>>{{0}, {1}});
    if (!std::isfinite(wrong)) {
      const auto by = gavel_objective::max_sum;
      CHECK(gavel_allocation({{1, 1, {wrong}}, {1, 1, {5}}}, {1}, by)[1][0] == Approx(1));
    }
    titan_problem t;
    t.jobs = 2;
    t.pools = {{4, {4, 2}}};
    t.columns = {{{0}, 0, 1, wrong}, {{1}, 0, 1, 5.0}};
    CHECK(solve_titan_program(t).taken == std::vector<std::size_t>{1});
    job_view a, b;
    sia_problem s;
    s.pools.emplace_back();
    s.pools[0].capacity = 1;
    s.groups.resize(2);
    s.groups[0].jobs = {&a};
    s.groups[1].jobs = {&b};
    sia_choice x;
    x.cost = -wrong;
    s.groups[0].choices = {x};
    x.cost = 0.5;
    s.groups[1].choices = {x};
    const auto answer = solve_sia(s);
    CHECK_FALSE(answer.unsolved);
    CHECK(answer.taken == std::vector<std::vector<std::uint32_t>>{{0}, {1}});
  }
}
