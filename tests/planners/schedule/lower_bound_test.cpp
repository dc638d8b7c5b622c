#include <catch2/catch.hpp>

#include "planners/schedule/named_schedule.hpp"
#include "planners/schedule/schedule.hpp"

using namespace troupe::planners;

namespace {

/// No recomputing, one pipeline.
pipeline_shape shape_of(std::uint32_t stages, std::uint32_t microbatches, pipeline_costs costs) {
  pipeline_shape s;
  s.stages = stages;
  s.microbatches = microbatches;
  s.costs = costs;
  s.recompute = false;
  return s;
}

/// The bound of a shape; its best schedule must be exactly as long.
double met_bound(const pipeline_shape& s) {
  const auto made = schedule_pipeline(s, "best");
  REQUIRE(made);
  const double bound = pipeline_lower_bound(s);
  CHECK(made->length == Approx(bound));
  return bound;
}

}  // namespace

TEST_CASE("one micro-batch passes all stages forward and back, and the first stage updates") {
  auto s = shape_of(4, 1, {2, 0, 4, 0.5, 3, 0.25});
  s.stages_of_datacenter = {2, 2};
  s.by_stage = {{1, 0, 2}, {1.5, 0, 2.5}, {2, 0, 3}, {1.25, 0, 4}};
  const double work = 1 + 2 + 1.5 + 2.5 + 2 + 3 + 1.25 + 4, ways = 2 * (0.5 + 3.25 + 0.5);
  CHECK(met_bound(s) == Approx(work + ways));
  s.tail = {5, 1, 1, 1};
  CHECK(met_bound(s) == Approx(work + ways + 5));
  s.tail = {0, 0, 0, 100};  // after the last stage's backward
  CHECK(met_bound(s) == Approx(1 + 1.5 + 2 + 1.25 + ways / 2 + 4 + 100));
}

TEST_CASE("with a WAN bottleneck the bound is the sum of its transfers") {
  auto s = shape_of(2, 10, {1, 0, 2, 0, 8, 1});
  s.stages_of_datacenter = {1, 1};
  // A forward, ten transfers, the way of the last one, both backwards, and a way back.
  CHECK(met_bound(s) == Approx(1 + 80 + 1 + 1 + 2 + 9 + 2));
}

TEST_CASE("a single stage does all of its work, and one micro-batch in flight makes round trips") {
  auto one = shape_of(1, 8, {1, 0, 2, 0, 0, 0});
  one.tail = {3};
  CHECK(met_bound(one) == Approx(8 * 3 + 3));
  auto two = shape_of(2, 3, {1, 0, 2, 1, 0, 0});
  two.max_in_flight = 1;
  CHECK(met_bound(two) == Approx(3 * (1 + 1 + 1 + 2 + 1 + 2)));
}

TEST_CASE("the pipelines of a cell use its WAN one after the other") {
  auto s = shape_of(2, 1, {1, 0, 2, 0, 8, 0});
  s.stages_of_datacenter = {1, 1};
  s.pipelines = 2;
  // The second one's transfer ends after both; its gradient crosses at the whole cell's rate.
  CHECK(met_bound(s) == Approx(1 + 8 + 1 + 2 + 4 + 2));
}

TEST_CASE("only the first recompute overlaps with the first gradient's transfer") {
  auto s = shape_of(2, 2, {1, 3, 2, 10, 0, 0});
  s.recompute = true;
  CHECK(met_bound(s) == Approx(1 + 10 + 1 + 2 + 10 + 2 * 2 + 3));
}
