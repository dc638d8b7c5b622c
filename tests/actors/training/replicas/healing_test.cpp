#include <catch2/catch.hpp>

#include "actors/training/trainer/healing.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Pipelines of two stages, each stage on a node of its own: node pipeline * 2 + stage.
training_plan planned(std::uint32_t pipelines) {
  training_plan plan;
  plan.shapes.front().stages = 2;
  plan.shapes.front().pipelines = pipelines;
  for (std::uint32_t p = 0; p < pipelines; ++p)
    for (std::uint32_t s = 0; s < 2; ++s) {
      stage_setup one;
      one.name = {1, p, s};
      one.stages = 2;
      one.pipelines = pipelines;
      one.devices = {static_cast<std::uint16_t>(s)};
      for (std::uint32_t k = 0; k < 2; ++k) one.neighbours.push_back(node_address(p * 2 + k));
      for (std::uint32_t k = 0; k < pipelines; ++k) one.peers.push_back(node_address(k * 2 + s));
      plan.stages.push_back(std::move(one));
    }
  return plan;
}

std::uint32_t in_one_site(address) {
  return 0;
}

/// All that are asked are after this many iterations, and then begin.
void all_answer(healing& h, training_plan& plan, std::uint64_t boundary) {
  bool decided = false;
  for (const auto i : h.unanswered()) decided = h.on_place(i, {h.view(), false, boundary});
  REQUIRE(decided);
  h.place(plan, [&](std::size_t) { return boundary; });
}
bool all_begin(healing& h) {
  bool over = false;
  for (const auto i : h.unanswered()) over = h.on_begun(i, h.view(), 3);
  return over;
}

}  // namespace

TEST_CASE("the stages of a lost node go to the peers that have the fewest") {
  auto plan = planned(3);
  healing h{plan, in_one_site};
  CHECK(plan.stages[0].view == 0u);
  REQUIRE(h.can_lose(5));
  h.lose(5, 1);  // stage 1 of pipeline 2
  CHECK(h.is_gathering());
  CHECK(h.unanswered().size() == 5);
  all_answer(h, plan, 7);
  CHECK(h.from() == 7);
  CHECK(h.sharing(1) == std::vector<std::size_t>{1, 5});
  CHECK(plan.stages[5].shares_with == 0u);
  CHECK(plan.stages[5].first_iteration == 7);
  for (const std::size_t i : {4, 5}) CHECK(plan.stages[i].neighbours[1] == node_address(1));
  for (const std::size_t i : {1, 3, 5}) CHECK(plan.stages[i].peers[2] == node_address(1));
  CHECK(h.begin_of(plan, 1).pipelines == std::vector<std::uint32_t>{0, 2});
  CHECK(all_begin(h));
  CHECK_FALSE(h.is_changing());
  CHECK(h.heals_so_far()->count == 1);
  CHECK(h.heals_so_far()->seconds == 2);
  // Then one that has two: one of its stages to each of those that are left would be none but one.
  REQUIRE(h.can_lose(1));
  h.lose(1, 1);
  CHECK(h.lost() == std::vector<std::size_t>{1, 5});
  all_answer(h, plan, 9);
  CHECK(h.sharing(3) == std::vector<std::size_t>{1, 3, 5});
  CHECK(all_begin(h));
  CHECK_FALSE(h.can_lose(3));
}

TEST_CASE("a second loss while a view begins places all that have not begun anew") {
  auto plan = planned(3);
  healing h{plan, in_one_site};
  h.lose(4, 1);  // stage 0 of pipeline 2: to pipeline 0's
  all_answer(h, plan, 3);
  CHECK(h.sharing(0) == std::vector<std::size_t>{0, 4});
  REQUIRE(h.can_lose(0));
  h.lose(0, 1);
  CHECK(h.lost() == std::vector<std::size_t>{0, 4});
  CHECK(h.unanswered() == std::vector<std::size_t>{2, 1, 3, 5});
  all_answer(h, plan, 3);
  CHECK(h.sharing(2) == std::vector<std::size_t>{0, 2, 4});
  CHECK(all_begin(h));
}

namespace {

constexpr double asked_s = 1;  // every so often, at first

/// The device's answer that it stands by, to the question that is due.
void stands_by(healing& h, std::size_t i, double now_s = 100) {
  h.take_absent(now_s, asked_s, 1e6);  // takes note of its loss
  std::uint64_t number = 0;
  for (const auto& d : h.take_absent(now_s + 1000, asked_s, 1e6))
    if (d.stage == i) number = d.number;
  REQUIRE(number > 0);
  REQUIRE(
      h.on_standby(i, number, node_address(static_cast<node_index>(i)), healing::answer::ready));
}

/// Two pipelines, of which the second's stage 1 is lost after iteration 7, and is back.
struct returned {
  training_plan plan = planned(2);
  healing h{plan, in_one_site};

  returned() {
    h.lose(3, 1);
    all_answer(h, plan, 7);
    REQUIRE(all_begin(h));
    stands_by(h, 3);
    REQUIRE(h.can_rejoin());
    h.rejoin(200);
  }
};

}  // namespace

TEST_CASE("a device that comes back has its stage again, with the state of its peer") {
  returned r;
  auto& h = r.h;
  CHECK(h.is_gathering());
  CHECK(h.unanswered().size() == 4);  // those that run, the lost stage's among them
  all_answer(h, r.plan, 9);
  CHECK(h.returning() == std::set<std::size_t>{3});
  CHECK(r.plan.stages[3].neighbours[1] == node_address(3));
  CHECK(r.plan.stages[1].peers[1] == node_address(3));
  CHECK_FALSE(r.plan.stages[3].shares_with);
  CHECK(r.plan.stages[3].first_iteration == 9);
  const auto joins = h.begin_of(r.plan, 3), gives = h.begin_of(r.plan, 1);
  CHECK(joins.takes == 0u);
  CHECK_FALSE(joins.gives);
  CHECK(joins.pipelines == std::vector<std::uint32_t>{1});
  CHECK(gives.gives == std::vector<std::uint32_t>{1});
  CHECK_FALSE(gives.takes);
  CHECK(gives.pipelines == std::vector<std::uint32_t>{0});
  CHECK_FALSE(h.begin_of(r.plan, 0).gives);
  CHECK(all_begin(h));
  CHECK(h.joined_now() == 1);
  CHECK(h.heals_so_far()->joined == 1u);
  CHECK(h.heals_so_far()->count == 1);  // a join is no loss
  CHECK_FALSE(h.can_rejoin());
  CHECK(h.take_absent(1e5, asked_s, 1e6).empty());
  // Then it can take over what its peer loses.
  CHECK(h.can_lose(1));
}

TEST_CASE("a view says the update that some stages have done, to those that have yet to") {
  auto plan = planned(2);
  healing h{plan, in_one_site};
  h.lose(3, 1);
  const bool known = GENERATE(true, false);
  for (const auto i : h.unanswered()) {
    view_place at{h.view(), false, 7, true};
    if (i == 0) at = {h.view(), false, 8};
    if (i == 0 && known) at.update = agreed_update{6.25, {{0, 1.5, {}}, {1, 2.5, {}}}};
    if (i != 0) at.update = agreed_update{1, {{0, 9, {}}, {1, 9, {}}}};  // the one before
    h.on_place(i, at);
  }
  REQUIRE(h.from() == 8);
  CHECK(h.lacks_update() == !known);
  CHECK((h.record_of(1) != nullptr) == known);
  if (!known) return;
  CHECK(h.record_of(1)->loss == 2.5);
  h.place(plan, [](std::size_t) { return 8ULL; });
  for (const std::size_t i : {0, 1, 2}) {
    const auto b = h.begin_of(plan, i);
    REQUIRE(b.update);
    CHECK(b.update->squared_norm == 6.25);
    CHECK(b.update->records.size() == 2);
  }
  // It goes on to the next view, should stages be lost before they have done it.
  CHECK(all_begin(h));
  REQUIRE_FALSE(h.can_lose(1));
}

TEST_CASE("a device whose stage has not reported the view's iterations joins a later one") {
  returned r;
  auto& h = r.h;
  bool decided = false;
  for (const auto i : h.unanswered()) decided = h.on_place(i, {h.view(), false, 9});
  REQUIRE(decided);
  h.place(r.plan, [](std::size_t i) { return i == 3 ? 8ULL : 9ULL; });
  CHECK(h.returning().empty());
  CHECK(all_begin(h));
  CHECK_FALSE(h.heals_so_far()->joined);
  REQUIRE(h.can_rejoin());
  h.rejoin(300);
  all_answer(h, r.plan, 10);
  CHECK(h.returning() == std::set<std::size_t>{3});
}

TEST_CASE("a device that is lost while it joins leaves the view, and is asked again, later") {
  returned r;
  auto& h = r.h;
  all_answer(h, r.plan, 9);
  CHECK_FALSE(h.can_lose(1));  // its only peer has no state yet
  REQUIRE(h.can_lose(3));
  h.lose(3, 300);
  CHECK(h.lost() == std::vector<std::size_t>{3});
  CHECK(h.returning().empty());
  all_answer(h, r.plan, 9);
  CHECK(h.sharing(1) == std::vector<std::size_t>{1, 3});
  CHECK(r.plan.stages[3].shares_with == 0u);
  CHECK(all_begin(h));
  CHECK_FALSE(h.heals_so_far()->joined);
  CHECK_FALSE(h.can_rejoin());
  CHECK(h.take_absent(400, asked_s, 1e6).empty());
  CHECK(h.take_absent(401.5, asked_s, 1e6).empty());  // twice as late as the first time
  const auto again = h.take_absent(402, asked_s, 1e6);
  REQUIRE(again.size() == 1);
  CHECK_FALSE(h.on_standby(3, again[0].number - 1, node_address(3), healing::answer::ready));
  CHECK_FALSE(h.on_standby(3, again[0].number, node_address(2), healing::answer::ready));
  CHECK(h.on_standby(3, again[0].number, node_address(3), healing::answer::ready));
}

TEST_CASE("a second loss while a device joins leaves both out, and those that are left go on") {
  auto plan = planned(3);
  healing h{plan, in_one_site};
  h.lose(3, 1);  // stage 1 of pipeline 1
  all_answer(h, plan, 7);
  REQUIRE(all_begin(h));
  stands_by(h, 3);
  h.rejoin(200);
  all_answer(h, plan, 9);
  REQUIRE(h.returning() == std::set<std::size_t>{3});
  REQUIRE(h.can_lose(1));
  h.lose(1, 300);
  CHECK(h.lost() == std::vector<std::size_t>{1, 3});
  all_answer(h, plan, 9);
  CHECK(h.sharing(5) == std::vector<std::size_t>{1, 3, 5});
  CHECK(all_begin(h));
  CHECK(h.heals_so_far()->count == 2);
  CHECK_FALSE(h.heals_so_far()->joined);
}

TEST_CASE("a device that does not answer or cannot start is given up") {
  auto plan = planned(2);
  healing h{plan, in_one_site};
  h.lose(3, 1);
  all_answer(h, plan, 7);
  REQUIRE(all_begin(h));
  CHECK(h.take_absent(10, asked_s, 30).empty());
  CHECK(h.take_absent(11, asked_s, 30).size() == 1);
  CHECK(h.take_absent(11.5, asked_s, 30).empty());
  CHECK(h.take_absent(41, asked_s, 30).empty());  // its part of the lease is lost by now
  double now_s = 100;
  std::uint64_t number = 1;
  for (int k = 0; k < 20; ++k)
    if (h.on_standby(3, number, node_address(3), healing::answer::failed)) ++number;
  for (int k = 0; k < 20; ++k) CHECK(h.take_absent(now_s += 1e4, asked_s, 1e9).empty());
}

TEST_CASE("no stage is taken over from another datacenter") {
  auto plan = planned(2);
  healing h{plan, [](address a) { return node_of(a) < 2 ? 0U : 1U; }};
  CHECK_FALSE(h.can_lose(0));
  CHECK_FALSE(healing{}.can_lose(0));
}

TEST_CASE("answers of an earlier view decide nothing") {
  auto plan = planned(2);
  healing h{plan, in_one_site};
  h.lose(3, 1);
  const auto first = h.view();
  REQUIRE(h.can_lose(2));
  h.lose(2, 1);
  CHECK_FALSE(h.on_place(0, {first, false, 5, false, {}}));
  CHECK_FALSE(h.on_place(1, {first, false, 5, false, {}}));
  CHECK_FALSE(h.on_place(0, {h.view(), false, 5, true, {}}));
  CHECK(h.on_place(1, {h.view(), false, 6, false, agreed_update{0, {{1, 0.5, {}}}}}));
  CHECK(h.from() == 6);
  REQUIRE(h.record_of(1));
  CHECK(h.record_of(1)->loss == 0.5);
  CHECK_FALSE(h.record_of(0));
}
