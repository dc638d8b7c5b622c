#include "studies/paired_windows.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::studies;

namespace {

/// Iterations of `with_s` in windows with prompts and of 1 s in the others, by turns; three in a
/// window of 4 s, and one over each border.
training_report report(std::size_t windows, double with_s) {
  training_report r;
  r.stages = 2;
  for (std::size_t w = 0; w < windows; ++w) {
    const bool prompts = w % 2 == 0;
    const double length_s = prompts ? with_s : 1, begin_s = 4 * double(w);
    for (int i = 0; i < 3; ++i) {
      auto& x = r.iterations.emplace_back();
      x.begin_s = begin_s + i * length_s;
      x.end_s = x.begin_s + length_s;
      x.busy_s = 1;
      if (prompts) x.guest_s = 0.25;
    }
    auto& over = r.iterations.emplace_back();
    over.begin_s = begin_s + 3.9;
    over.end_s = begin_s + 4.1;
  }
  return r;
}

std::vector<offer_window> by_turns(std::size_t count) {
  std::vector<offer_window> all;
  for (std::size_t w = 0; w < count; ++w) all.push_back({w % 2 == 0, 4.0 * w, 4.0 * (w + 1)});
  return all;
}

}  // namespace

TEST_CASE("iterations count for the window that they lie in completely") {
  const auto r = report(4, 1.25);
  CHECK(iteration_lengths(r, by_turns(4), true) == std::vector<double>(6, 1.25));
  CHECK(iteration_lengths(r, by_turns(4), false) == std::vector<double>(6, 1));
  CHECK(iteration_lengths(r, {}, true).empty());
}

TEST_CASE("windows with prompts are compared with those that follow them") {
  const auto p = compare_windows(report(6, 1.25), by_turns(6));
  REQUIRE(p);
  CHECK(p->windows == 6);
  CHECK(p->iterations_with == 9);
  CHECK(p->iterations_without == 9);
  CHECK(p->ratio_median == Approx(1.25));
  CHECK(p->ratio_low == Approx(1.25));
  CHECK(p->ratio_high == Approx(1.25));
  CHECK(p->aa_low == Approx(1));
  CHECK(p->aa_high == Approx(1));
  CHECK(p->iteration_s_with == Approx(1.25));
  CHECK(p->busy_without == Approx(0.5));  // 1 s on 2 devices in 1 s
  CHECK(p->guests_with == Approx(0.25 / 2 / 1.25));
}

TEST_CASE("a single pair of windows is no comparison") {
  CHECK_FALSE(compare_windows(report(2, 1.25), by_turns(2)));
  CHECK_FALSE(compare_windows(report(6, 1.25), {}));
}
