#include <catch2/catch.hpp>

#include "actors/training/device/stage_replica.hpp"

using namespace troupe::actors;

namespace {

using update = stage_replica::update;

struct one_replica : stage_replica {
  one_replica() : stage_replica{1, 5} {}
  bool steps(std::uint32_t pipeline, std::uint64_t view, std::uint64_t iteration) {
    return may_step(pipeline, view, iteration, [this] { ++woken; });
  }
  int woken = 0;
};

}  // namespace

TEST_CASE("a stage that shares its weights with nobody never waits") {
  one_replica r;
  CHECK_FALSE(r.is_shared());
  for (std::uint64_t i = 5; i < 8; ++i) {
    CHECK(r.steps(1, 0, i));
    r.end_steps(1, i);
    CHECK(r.begin_update(i, {}) == update::execute);
    r.end_update({});
  }
  CHECK(r.woken == 0);
}

TEST_CASE("pipelines that share weights pass one after the other, in ascending order") {
  one_replica r;
  REQUIRE(r.begin(3, {0, 1, 4}, true));  // this stage resets the device
  CHECK_FALSE(r.begin(3, {0, 1, 4}, true));
  CHECK(r.is_shared());
  CHECK_FALSE(r.steps(0, 3, 5));  // it is being reset
  r.end_reset();
  CHECK(r.woken == 1);
  CHECK_FALSE(r.steps(1, 3, 5));
  CHECK_FALSE(r.steps(4, 3, 5));
  CHECK(r.steps(0, 3, 5));
  r.end_steps(0, 5);
  CHECK(r.woken == 3);
  CHECK(r.steps(1, 3, 5));
  CHECK_FALSE(r.steps(4, 3, 5));
  r.end_steps(1, 5);
  CHECK(r.steps(4, 3, 5));
  CHECK_FALSE(r.steps(4, 2, 5));  // of the view before
  CHECK_FALSE(r.steps(0, 3, 6));  // before the update
}

TEST_CASE("a stage that waits before its view has begun on the device is woken when it does") {
  one_replica r;
  CHECK_FALSE(r.steps(1, 4, 5));  // it is new in view 4
  CHECK_FALSE(r.begin(4, {0, 1}, false));
  CHECK(r.woken == 1);
  CHECK_FALSE(r.steps(1, 4, 5));
  CHECK(r.steps(0, 4, 5));
}

TEST_CASE("a device is reset for the first stage that left an iteration, before any step") {
  one_replica r;
  CHECK_FALSE(r.begin(4, {0, 1}, false));
  CHECK(r.begin(4, {0, 1}, true));
  CHECK_FALSE(r.steps(0, 4, 5));
  r.end_reset();
  CHECK(r.steps(0, 4, 5));
  // A message that comes late resets nothing that was computed in the view.
  CHECK_FALSE(r.begin(5, {0, 1}, false));
  CHECK(r.steps(0, 5, 5));
  CHECK_FALSE(r.begin(5, {0, 1}, true));
}

TEST_CASE("weights are updated once for all stages that share them") {
  one_replica r;
  int woken = 0;
  CHECK(r.begin_update(5, [&] { ++woken; }) == update::execute);
  CHECK(r.begin_update(5, [&] { ++woken; }) == update::wait);
  troupe::gpu::operations::update::result done;
  done.squared_norm = 7;
  r.end_update(done);
  CHECK(woken == 1);
  CHECK(r.begin_update(5, {}) == update::done);
  CHECK(r.updated().squared_norm == 7);
  CHECK(r.begin_update(6, {}) == update::execute);
}

TEST_CASE("a view that begins with an update resets nothing") {
  one_replica r;
  CHECK(r.begin_update(5, {}) == update::execute);
  CHECK_FALSE(r.begin(1, {0, 1}, false));
  CHECK_FALSE(r.steps(0, 1, 6));
  r.end_update({});
  CHECK(r.steps(0, 1, 6));
  CHECK_FALSE(r.steps(1, 1, 6));
}
