#include "actors/control/ledger/progress_report.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::actors;

namespace {

job_record job_of(job_state state, std::uint64_t iterations, std::uint64_t done) {
  job_spec spec;
  spec.iterations = iterations;
  spec.program.command = {"a program"};
  job_record j;
  j.id = 3;
  j.state = state;
  j.spec = shared_value{spec};
  j.progress.iterations_done = done;
  j.lease = 5;
  return j;
}

lease_record a_lease() {
  lease_record l;
  l.granted.lease = 5;
  l.granted.job = 3;
  l.granted.at_s = 100;
  l.granted.start_s = 10;
  l.granted.iteration_s = 2;
  return l;
}

job_status status(const job_record& j, const lease_record* l, const progress_report* known,
                  double now_s) {
  job_status s;
  add_progress(s, j, l, known, now_s);
  return s;
}

}  // namespace

TEST_CASE(
    "progress from a trainer's report has the last iteration and the average iteration time") {
  training_report r;
  r.job = 3;
  r.lease = 5;
  r.device = "cpu";
  r.tokens_per_s = 70;
  r.iterations.resize(2);
  r.iterations[0].iteration = 8, r.iterations[0].begin_s = 10, r.iterations[0].end_s = 13;
  r.iterations[1].iteration = 9, r.iterations[1].begin_s = 14, r.iterations[1].end_s = 15;
  r.iterations[1].loss = 0.5;
  r.held_out = held_out_losses{8, 0.75, 4, 0.5};
  auto p = progress_of(r, 1000);
  CHECK(p.job == 3);
  CHECK(p.lease == 5);
  CHECK(p.iteration == 9);
  CHECK(p.at_s == 1000);
  CHECK(p.iteration_s == 2);
  CHECK(p.loss == 0.5);
  CHECK(p.tokens_per_s == 70.0);
  REQUIRE(p.held_out);
  CHECK(p.held_out->loss == 0.75);
  const auto l = a_lease();
  const auto shown = status(job_of(job_state::running, 20, 0), &l, &p, 1000).held_out;
  REQUIRE(shown);
  CHECK(shown->best_iteration == 4);
  r.device = "sim";
  r.tokens_per_s = 0;
  p = progress_of(r, 1000);
  CHECK_FALSE(p.loss);
  CHECK_FALSE(p.tokens_per_s);
}

TEST_CASE("a program's speed is what it says, or counts from the grant and where it resumed") {
  part_report r;
  r.program.emplace().iteration = 24;
  const auto p = progress_of(a_lease(), 20, r, 108);
  CHECK(p.job == 3);
  CHECK(p.lease == 5);
  CHECK(p.iteration == 24);
  CHECK(p.iteration_s == 2);
  CHECK(p.at_s == 108);
  r.program->resumed = 8;
  CHECK(progress_of(a_lease(), 20, r, 108).iteration_s == 0.5);
  r.program->step_s = 0.25;
  CHECK(progress_of(a_lease(), 20, r, 108).iteration_s == 0.25);
  r.program = {};
  r.program.emplace().iteration = 20;
  CHECK(progress_of(a_lease(), 20, r, 108).iteration_s == 0);  // unknown
}

TEST_CASE("a running job's expected end follows its last report, and once past is not known") {
  const auto j = job_of(job_state::running, 100, 20);
  const auto l = a_lease();
  progress_report known{3, 5, 40, 200, 3, 0.25, 7.0};
  auto s = status(j, &l, &known, 210);
  CHECK(s.iterations == 100);
  CHECK(s.iteration == 40);
  CHECK(s.loss == 0.25);
  CHECK(s.tokens_per_s == 7.0);
  CHECK(s.eta_s == 200 + 60 * 3 - 210.0);
  CHECK(status(j, &l, &known, 379).eta_s == 1.0);
  CHECK_FALSE(status(j, &l, &known, 380).eta_s);
  CHECK_FALSE(status(j, &l, &known, 1000).eta_s);  // it hangs
  known.iteration = 10;                            // it had to start over
  CHECK(status(j, &l, &known, 210).iteration == 10);
  known.iteration = 1000;
  CHECK(status(j, &l, &known, 210).iteration == 100);
  CHECK_FALSE(status(j, &l, &known, 200).eta_s);  // it does more than its job file has
  known.iteration = 40;
  known.iteration_s = 0;
  CHECK_FALSE(status(j, &l, &known, 210).eta_s);
  known.iteration_s = 3;
  known.lease = 4;  // an earlier lease's
  CHECK_FALSE(status(j, &l, &known, 210).eta_s);
  CHECK(status(j, &l, &known, 210).iteration == 20);  // what is saved counts, not what it reported
  CHECK_FALSE(status(j, &l, &known, 210).loss);
  known.lease = 5;
  CHECK_FALSE(status(j, nullptr, &known, 210).eta_s);
  CHECK_FALSE(status(j, &l, nullptr, 210).eta_s);
}

TEST_CASE("a waiting job shows its saved iterations, and a stopping job has no expected end") {
  const progress_report known{3, 5, 40, 200, 3, 0.25, 7.0};
  const auto l = a_lease();
  auto s = status(job_of(job_state::waiting, 100, 20), nullptr, &known, 210);
  CHECK(s.iteration == 20);
  CHECK_FALSE(s.loss);
  CHECK_FALSE(s.eta_s);
  s = status(job_of(job_state::stopping, 100, 20), &l, &known, 210);
  CHECK(s.iteration == 40);
  CHECK_FALSE(s.eta_s);
}

TEST_CASE("a program that does not say how many iterations it has shows those done, and no end") {
  auto l = a_lease();
  const auto j = job_of(job_state::running, 1, 0);
  const progress_report known{3, 5, 12, 150, 4, {}, {}};
  const auto s = status(j, &l, &known, 160);
  CHECK(s.iteration == 12);
  CHECK(s.iterations == 0);
  CHECK_FALSE(s.eta_s);
  CHECK(status(j, &l, nullptr, 160).iteration == 0);
  CHECK_FALSE(status(j, &l, nullptr, 160).eta_s);
}

TEST_CASE("simulated work has done what its time allows, after its start") {
  auto j = job_of(job_state::running, 100, 20);
  auto spec = *j.spec;
  spec.program.command.clear();
  j.spec = shared_value{spec};
  auto l = a_lease();
  CHECK(status(j, &l, nullptr, 105).iteration == 20);
  CHECK(status(j, &l, nullptr, 105).eta_s == 165.0);
  CHECK(status(j, &l, nullptr, 117).iteration == 23);
  CHECK(status(j, &l, nullptr, 117).eta_s == 153.0);
  CHECK(status(j, &l, nullptr, 1000).iteration == 100);
  CHECK_FALSE(status(j, &l, nullptr, 1000).eta_s);
  l.granted.iteration_s = 0;
  CHECK(status(j, &l, nullptr, 1000).iteration == 20);
}
