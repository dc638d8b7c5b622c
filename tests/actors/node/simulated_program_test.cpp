#include "actors/node/simulated_program.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using actors::simulated_program;

namespace {

/// 100 iterations of 2 s after a start of 10 s, of which 50 were saved before; saves for 3 s, and
/// by itself every 20 s.
work_order elastic_order(double grace_s = 60) {
  work_order w;
  w.iterations = 100;
  w.iteration_s = 2;
  w.start_s = 10;
  w.program = program_order{grace_s, 50, 150, 3.0, 20.0};
  return w;
}

simulated_program::end stop_at(const work_order& w, double asked_s) {
  return simulated_program{w, 1, asked_s}.stopped();
}

}  // namespace

TEST_CASE("a simulated program reports iterations and what it has saved by itself") {
  const auto w = elastic_order();
  const simulated_program p{w, 1, {}};
  CHECK(p.progress(9).iteration == 50);
  CHECK(p.progress(9).step_s == 0);
  CHECK(p.progress(10 + 2 * 25 + 1).iteration == 75);
  CHECK(p.progress(10 + 2 * 25 + 1).saved == 50 + 20);
  CHECK(p.progress(10 + 2 * 25 + 1).resumed == 50);
  CHECK(p.progress(1000).iteration == 150);
  CHECK_FALSE(p.progress(1000).finished);
  CHECK(simulated_program{w, 2, {}}.progress(20 + 4 * 25 + 1).iteration == 75);
  CHECK_FALSE(simulated_program::runs(work_order{}));
}

TEST_CASE("a simulated program that is asked to stop completes its iteration and saves") {
  const auto w = elastic_order();
  const auto e = stop_at(w, 10 + 2 * 25 + 0.5);
  CHECK(e.at_s == Approx(10 + 2 * 26 + 3));
  CHECK(e.iterations == 26);
  CHECK(e.saved == 76);
  const simulated_program p{w, 1, 10 + 2 * 25 + 0.5};
  CHECK(p.progress(e).signalled);
  CHECK_FALSE(p.progress(e).finished);
  // While it saves it does nothing else.
  CHECK(p.progress(e.at_s - 0.1).iteration == 76);
}

TEST_CASE("a simulated program that has not begun its first iteration ends at once") {
  const auto e = stop_at(elastic_order(), 9);
  CHECK(e.at_s == 9);
  CHECK(e.iterations == 0);
  CHECK(e.saved == 50);
}

TEST_CASE("a simulated program that saves longer than its grace has its own checkpoints") {
  auto w = elastic_order(30);
  w.program->save_s = 100;
  const auto e = stop_at(w, 10 + 2 * 25 + 0.5);
  CHECK(e.at_s == Approx(10 + 2 * 25 + 0.5 + 30));
  CHECK(e.iterations == 26);  // not those of the time in which it saved
  CHECK(e.saved == 50 + 20);
  w.program->checkpoint_every_s = 1000;
  CHECK(stop_at(w, 61).saved == 50);
}

TEST_CASE("a simulated program that is stopped in its last iteration finishes") {
  auto w = elastic_order(5);
  w.program->save_s = 100;
  const double asked_s = 10 + 2 * 99 + 0.5;
  const auto e = stop_at(w, asked_s);
  CHECK(e.at_s == Approx(10 + 2 * 100));
  CHECK(simulated_program{w, 1, asked_s}.progress(e).finished);
}
