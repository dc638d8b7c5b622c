// A real profile of a tiny model. Only its form is tested: the times depend on the machine.
#include <algorithm>

#include <catch2/catch.hpp>

#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/pipeline.hpp"
#include "gpu/profiling/profile.hpp"

using namespace troupe;
using namespace troupe::gpu;
using Catch::Contains;

namespace {

profile_wish wish() {
  profile_wish w;
  w.models = {troupe::test::small_model(true)};
  w.rows = {1, 3};
  w.rounds = 3;
  return w;
}

}  // namespace

TEST_CASE("a CPU profile has the requested points, its date, memory and clocks") {
  auto w = wish();
  w.sequences = {8, 16};
  w.busy = 2;
  std::vector<std::string> said;
  std::vector<double> shares;
  w.progress = [&](const std::string& text, double share) {
    if (said.empty() || said.back() != text) said.push_back(text);
    shares.push_back(share);
  };
  const auto p = measure_device(w);
  REQUIRE(p);
  CHECK(p->kind == "cpu");
  CHECK_FALSE(p->device.empty());
  CHECK_FALSE(p->libraries.empty());
  CHECK(p->date.size() == 20);
  CHECK(p->busy == 2);
  CHECK(p->total_bytes >= p->free_bytes);
  CHECK(p->free_bytes > 0);
  CHECK(p->copies.on_device_gbytes_s > 0);
  CHECK_THAT(p->copies.all_reduce, Contains("not measured"));
  REQUIRE(p->models.size() == 1);
  CHECK(p->models[0].intermediate == 96);
  REQUIRE(p->models[0].points.size() == 4);
  CHECK(said.size() == 4);
  CHECK_THAT(said[1], Contains("3 rows of 8 tokens"));
  // Each round of each stage is a step; the sizes count by their tokens: 8, 24, 16 and 48.
  CHECK(shares.front() == 0);
  CHECK(shares.back() == Approx(1));
  CHECK(std::ranges::is_sorted(shares));
  CHECK(shares.size() > 4 * 7 * 3);
  CHECK(std::ranges::count_if(shares, [](double x) { return x < 0.083; }) > 7 * 3);
  CHECK(std::ranges::count_if(shares, [](double x) { return x > 0.501; }) > 7 * 3);
  for (const auto& x : p->models[0].points)
    for (const auto& part : {x.attention, x.mlp, x.embedding, x.head}) {
      // Differences of measured times: on a busy machine, a model so small can come to nothing.
      for (const double took_s :
           {part.forward_s, part.recompute_s, part.backward_s, part.update_s, part.gradients_s})
        CHECK((took_s >= 0 && took_s < 10));
    }
}

TEST_CASE("a CPU profile has points of stages that several devices share") {
  auto w = wish();
  w.tensor_parallel = {3};
  w.busy = 6;
  auto p = measure_device(w);
  REQUIRE(p);
  const auto& points = p->models[0].points;
  REQUIRE(points.size() == 4);
  CHECK(points[1].tensor_parallel == 1);
  CHECK(points[3].tensor_parallel == 3);
  CHECK(points[3].rows == 3);
  CHECK(points[3].head.backward_s > 0);
  w.tensor_parallel = {2};  // must divide the model's three heads
  p = measure_device(w);
  REQUIRE_FALSE(p);
  CHECK_THAT(p.error().text, Contains("2"));
}

TEST_CASE("a profile measured at an emulated speed reports full-speed times") {
  auto w = wish();
  const auto sum_s = [&](double speed) {
    w.emulate_speed = speed;
    const auto p = measure_device(w);
    REQUIRE(p);
    double s = 0;
    for (const auto& x : p->models[0].points)
      for (const auto& part : {x.attention, x.mlp, x.embedding, x.head})
        s += part.forward_s + part.backward_s;
    return s;
  };
  const double whole_s = sum_s(1), paused_s = sum_s(0.05);
  CHECK(paused_s < 8 * whole_s);  // not 20 times
  CHECK(paused_s > whole_s / 8);
}

TEST_CASE("an untied head and a one-layer model are profiled too") {
  auto w = wish();
  w.rows = {1};
  w.models[0].tied_head = false;
  w.models[0].layers = 1;
  const auto p = measure_device(w);
  REQUIRE(p);
  CHECK_FALSE(p->models[0].tied_head);
  CHECK(p->models[0].points[0].ends.forward_s >= 0);
}

TEST_CASE("a machine's copies are measured") {
  const auto m = troupe::test::emulated_machine();
  const auto p = describe_machine(*m, 1 << 16);
  CHECK(p.kind == "cuda");
  CHECK(p.device == m->name());
  CHECK(p.copies.to_device_gbytes_s > 0);
  CHECK(p.copies.from_device_gbytes_s > 0);
  CHECK(p.copies.on_device_gbytes_s > 0);
  CHECK(p.copies.all_reduces.empty());
}

TEST_CASE("a model that cannot be measured is refused with the device's sentence") {
  auto w = wish();
  w.models[0].family = "llama";
  auto p = measure_device(w);
  REQUIRE_FALSE(p);
  CHECK_THAT(p.error().text, Contains("not 'llama'"));
  w = wish();
  w.device = "cuda";
  w.index = 999;
  p = measure_device(w);
  REQUIRE_FALSE(p);
  CHECK_THAT(p.error().text, Contains("CUDA"));
}

TEST_CASE(
    "sublayer times are differences of stages with one and three layers, and of half layers") {
  const auto of = [](double s) { return part_times{s, s, s, s, s, 0, 0}; };
  // Plain 2; an attention 10, an MLP 30.
  const auto t = take_apart({of(12), of(32), of(42), of(122)});
  CHECK(t.plain.forward_s == Approx(2));
  CHECK(t.attention.backward_s == Approx(10));
  CHECK(t.mlp.update_s == Approx(30));
  // Nothing but noise: a third of three layers each, and no part below 0.
  const auto noise = take_apart({of(1), of(1), of(3), of(3)});
  CHECK(noise.attention.forward_s + noise.mlp.forward_s == Approx(1));
  CHECK(noise.plain.forward_s == Approx(2));
  CHECK(noise.attention.forward_s >= 0);
  const auto ends = both_ends({of(5), of(7), of(50), of(42)}, of(2));
  CHECK(ends.forward_s == Approx(5 + 7 - 2));
  CHECK(ends.update_s == Approx(50 - 42 + 2));
}
