#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "actors/training/device/kept_states.hpp"
#include "actors/training/replicas/view_change.hpp"
#include "actors/training/trainer/healing.hpp"
#include "messages/base/random.hpp"

// Replicas without peers that have lost their weights, and go on from a copy of their state.

using namespace troupe;
using namespace troupe::actors;

namespace {

using places = std::map<replica_id, replica_place>;

constexpr replica_id stage_0{0, 0}, stage_1{1, 0}, stage_2{2, 0};

replica_place with(std::vector<std::uint64_t> copies) {
  return {copies.empty() ? 0 : copies.back(), false, true, std::move(copies)};
}

}  // namespace

TEST_CASE("replicas restore the newest copy that all of them have") {
  CHECK(common_boundary({{stage_0, with({6, 7})}, {stage_1, with({6, 7})}}) == 7);
  CHECK(common_boundary({{stage_0, with({7, 8})}, {stage_1, with({6, 7})}}) == 7);
  CHECK(common_boundary({{stage_0, with({6, 7})}, {stage_1, with({7, 8})}, {stage_2, with({7})}}) ==
        7);
  CHECK_FALSE(common_boundary({{stage_0, with({7, 8})}, {stage_1, with({5, 6})}}));
  CHECK_FALSE(common_boundary({{stage_0, with({7, 8})}, {stage_1, with({})}}));
  // One that has lost its weights, and another one that keeps no copies any more.
  CHECK_FALSE(common_boundary({{stage_0, {8, false, false, {}}}, {stage_1, with({7, 8})}}));
}

TEST_CASE("a view change waits for a replica that has lost its weights") {
  view_change v{{stage_0, stage_1}, 2};
  v.regather();
  v.on_place(stage_0, v.number(), with({7, 8}));
  CHECK(v.state() == view_change::phase::gathering);
  CHECK(v.unanswered() == std::vector{stage_1});
  v.on_place(stage_1, v.number(), with({6, 7}));
  REQUIRE(v.state() == view_change::phase::beginning);
  CHECK(v.from() == 7);
  CHECK(v.is_level());
  CHECK(v.restores());
  // The other one is lost before it has begun.
  v.on_begun(stage_0, v.number());
  v.regather();
  v.on_place(stage_0, v.number(), with({6, 7}));
  v.on_place(stage_1, v.number(), with({6, 7}));
  REQUIRE(v.state() == view_change::phase::beginning);
  v.on_begun(stage_0, v.number());
  v.on_begun(stage_1, v.number());
  CHECK(v.state() == view_change::phase::stable);
}

// Each replica updates, and then copies, before any of them updates again.
TEST_CASE("replicas that keep two copies and are one update apart always have a common one") {
  random_source random{5};
  for (int round = 0; round < 10'000; ++round) {
    const std::uint64_t base = 2 + random.below(5);
    places all;
    std::uint64_t fewest = base + 1;
    for (std::uint32_t s = 0; s < 1 + random.below(4); ++s) {
      const std::uint64_t copied = base + random.below(2);
      fewest = std::min(fewest, copied);
      all[{s, 0}] = with({copied - 1, copied});
    }
    CHECK(common_boundary(all) == fewest);
  }
}

TEST_CASE("a node keeps the two newest copies of a stage's state") {
  kept_states kept;
  const auto folder = [] {
    auto made = socket_folder::make();
    REQUIRE(made);
    return std::make_shared<const socket_folder>(std::move(*made));
  };
  CHECK(kept.iterations().empty());
  kept.add(1, folder());
  const auto second_copy = folder();
  kept.add(2, second_copy);
  kept.add(3, folder());
  CHECK(kept.iterations() == std::vector<std::uint64_t>{2, 3});
  CHECK(kept.of(1) == nullptr);
  CHECK(kept.of(2) == second_copy);
  // The training has gone back.
  const auto again = folder();
  kept.add(3, again);
  CHECK(kept.iterations() == std::vector<std::uint64_t>{2, 3});
  CHECK(kept.of(3) == again);
  kept.clear();
  CHECK(kept.iterations().empty());
}

namespace {

/// One pipeline of two stages, each on a node of its own.
struct alone {
  training_plan plan;
  healing h;

  alone() {
    plan.shapes.front().stages = 2;
    plan.shapes.front().pipelines = 1;
    for (std::uint32_t s = 0; s < 2; ++s) {
      stage_setup one;
      one.name = {1, 0, s};
      one.stages = 2;
      one.devices = {0};
      one.neighbours = {node_address(0), node_address(1)};
      one.peers = {node_address(s)};
      plan.stages.push_back(std::move(one));
    }
    h = healing{plan, [](address) { return 0U; }};
  }

  /// The number by which its device is asked to stand by.
  std::uint64_t asked(std::size_t i, double now_s) {
    for (const auto& d : h.take_absent(now_s, 1, 10))
      if (d.stage == i) return d.number;
    return 0;
  }
  bool stands_by(std::size_t i, double now_s, std::vector<std::uint64_t> copies) {
    const auto number = asked(i, now_s);
    REQUIRE(number > 0);
    REQUIRE(
        h.on_standby(i, number, node_address(static_cast<node_index>(i)), healing::answer::ready));
    return h.on_copies(i, std::move(copies));
  }
  void place(std::uint64_t reported) {
    h.place(plan, [=](std::size_t) { return reported; });
  }
};

}  // namespace

namespace {

view_place restoring(const alone& t) {
  view_place at{t.h.view(), false, 8};
  at.restores = true;
  return at;
}

}  // namespace

TEST_CASE("a stage without a peer is awaited and restores its copy") {
  alone t;
  CHECK_FALSE(t.h.can_lose(1));
  REQUIRE(t.h.can_await(1));
  t.h.await(1, 5);
  CHECK(t.h.is_gathering());
  CHECK_FALSE(t.h.on_place(0, restoring(t), {7, 8}));
  // Where its old actor stood says nothing.
  CHECK_FALSE(t.h.on_place(1, {t.h.view(), false, 8}, {7}));
  REQUIRE(t.stands_by(1, 5, {6, 7}));
  CHECK(t.h.from() == 7);
  CHECK_FALSE(t.h.lacks_update());
  t.place(7);
  CHECK(t.h.returning() == std::set<std::size_t>{1});
  for (const std::size_t i : {0, 1}) {
    const auto b = t.h.begin_of(t.plan, i);
    CHECK(b.restores == true);
    CHECK_FALSE(b.takes);
    CHECK_FALSE(b.gives);
  }
  CHECK_FALSE(t.h.on_begun(0, t.h.view(), 6));
  CHECK(t.h.on_begun(1, t.h.view(), 7));
  CHECK(t.h.heals_so_far()->count == 1);
  CHECK(t.h.heals_so_far()->joined == 1u);
  CHECK(t.h.heals_so_far()->seconds == 2);
  CHECK_FALSE(t.h.awaits(1));
}

TEST_CASE("a second stage lost during the wait for the first is awaited as well") {
  alone t;
  t.h.await(1, 5);
  REQUIRE(t.h.can_await(0));
  t.h.await(0, 6);
  CHECK_FALSE(t.stands_by(1, 6, {7, 8}));
  // A gather began with the second loss: it is asked again, and says the same.
  REQUIRE(t.stands_by(0, 7, {6, 7}));
  CHECK(t.h.from() == 7);
  t.place(7);
  // One is lost again before the view has begun: where the other stands is not known.
  t.h.await(0, 8);
  CHECK(t.h.awaits(1));
  CHECK_FALSE(t.stands_by(0, 8, {6, 7}));
  CHECK(t.stands_by(1, 9, {7}));
  CHECK(t.h.from() == 7);
}

TEST_CASE("a training fails if copies are too old, and a stage is not awaited a ninth time") {
  alone t;
  t.h.await(1, 5);
  t.h.on_place(0, restoring(t), {7, 8});
  CHECK_FALSE(t.stands_by(1, 5, {5, 6}));
  CHECK(t.h.has_failed());
  alone again;
  for (int i = 0; i < 8; ++i) {
    REQUIRE(again.h.can_await(1));
    again.h.await(1, 5 + i);
  }
  CHECK_FALSE(again.h.can_await(1));
}
