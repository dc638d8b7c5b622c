#include "actors/training/stage_checks.hpp"

#include <catch2/catch.hpp>

#include "runtime_real/world.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr address at_a0 = 3, at_a1 = 4, at_b0 = 5;

/// The middle stage of three on a-0, a-1 and b-0, in the first of two pipelines.
stage_setup middle_stage() {
  stage_setup s;
  s.name = {7, 0, 1};
  s.devices = {0, 1};
  s.stages = 3, s.pipelines = 2, s.microbatches = 2;
  s.order = {{stage_step::kind::forward, 0, 0}, {stage_step::kind::backward, 1, 0}};
  s.neighbours = {at_a0, at_a1, at_b0};
  s.peers = {at_a1, at_b0};
  return s;
}

work_order a_part() {
  work_order w;
  w.lease = 7;
  w.devices = {0, 1, 2};
  w.train.emplace();
  w.train->trainer = 0;
  w.train->parts = {{0, 1, {0}}, {1, 1, {0}}};
  return w;
}

tensor from(tensor::kind what, std::uint32_t pipeline, std::uint32_t stage) {
  tensor t;
  t.what = what;
  t.from = {7, pipeline, stage};
  return t;
}

tensor_request asking(tensor::kind what, std::uint32_t pipeline, std::uint32_t stage) {
  tensor_request r;
  r.what = what;
  r.from = {7, pipeline, stage};
  return r;
}

}  // namespace

TEST_CASE("a stage is asked for what it sent by the stage that takes it, and by that one's node") {
  using kind = tensor::kind;
  const auto s = middle_stage();
  CHECK(is_asked_by_its_stage(s, asking(kind::activation, 0, 2), at_b0));
  CHECK(is_asked_by_its_stage(s, asking(kind::gradient, 0, 0), at_a0));
  CHECK(is_asked_by_its_stage(s, asking(kind::part, 1, 1), at_b0));
  CHECK(is_asked_by_its_stage(s, asking(kind::sum, 1, 1), at_b0));
  // Another node, another stage, another pipeline, no stage at all, too many micro-batches.
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::activation, 0, 2), at_a0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::activation, 0, 0), at_a0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::activation, 1, 2), at_b0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::gradient, 0, 2), at_b0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::gradient, 0, ~0U), at_a0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::part, 1, 1), at_a1));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::part, ~0U, 1), at_b0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::sum, 0, 1), at_a1));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::tied_part, 0, 0), at_a0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::tied_sum, 0, 2), at_b0));
  auto many = asking(kind::activation, 0, 2);
  many.microbatches.assign(s.microbatches + 1, 0);
  CHECK_FALSE(is_asked_by_its_stage(s, many, at_b0));
  auto first = s;
  first.name.stage = 0, first.peers = {at_a0, at_b0};
  CHECK(is_asked_by_its_stage(first, asking(kind::tied_sum, 0, 2), at_b0));
  auto last = s;
  last.name.stage = 2, last.peers = {at_b0, at_b0};
  CHECK(is_asked_by_its_stage(last, asking(kind::tied_part, 0, 0), at_a0));
  auto alone = first;
  alone.stages = 1;
  CHECK_FALSE(is_asked_by_its_stage(alone, asking(kind::tied_sum, 0, 0), at_a0));
}

TEST_CASE("a setup that contradicts itself or the lease is refused before anything is made of it") {
  REQUIRE(check_setup(middle_stage(), a_part()));
  const auto refused = [](auto&& spoil) {
    auto s = middle_stage();
    spoil(s);
    CHECK_FALSE(check_setup(s, a_part()));
  };
  refused([](stage_setup& s) { s.name.stage = 3; });
  refused([](stage_setup& s) { s.name.pipeline = 2; });
  refused([](stage_setup& s) { s.stages = 0; });
  refused([](stage_setup& s) { s.pipelines = ~0U; });
  refused([](stage_setup& s) { s.microbatches = 0; });
  refused([](stage_setup& s) { s.microbatches = ~0U; });
  refused([](stage_setup& s) { s.rows = 0; });
  refused([](stage_setup& s) { s.neighbours.pop_back(); });
  refused([](stage_setup& s) { s.peers.clear(); });
  refused([](stage_setup& s) { s.peers[0] = at_a0; });  // it is in two places
  refused([](stage_setup& s) { s.devices = {0, 3}; });  // not the lease's
  refused([](stage_setup& s) { s.order[1].microbatch = 2; });
  refused([](stage_setup& s) { s.order.resize(7); });
}

TEST_CASE("steps for micro-batches that there are not are refused, also in a later order") {
  CHECK(check_order({}, 1));
  CHECK_FALSE(check_order({{stage_step::kind::forward, 1, 0}}, 1));
  CHECK_FALSE(check_order({{stage_step::kind::recompute, ~0U, 0}}, 4));
}

TEST_CASE("only the trainer's node sets stages up, and only nodes of the lease report") {
  const auto c = runtime::test::two_datacenters();
  auto w = a_part();
  CHECK(is_trainer(c, w, at_a0));
  for (const address a : {0U, 1U, at_a1, at_b0, first_client_address})
    CHECK_FALSE(is_trainer(c, w, a));
  CHECK(is_lease_node(c, w, at_a0));
  CHECK(is_lease_node(c, w, at_a1));
  for (const address a : {0U, 1U, at_b0, first_client_address}) CHECK_FALSE(is_lease_node(c, w, a));
  w.train->trainer = 99;
  CHECK_FALSE(is_trainer(c, w, at_a0));
  w.train.reset();
  CHECK_FALSE(is_trainer(c, w, at_a0));
  CHECK_FALSE(is_lease_node(c, w, at_a0));
}

TEST_CASE(
    "a stage takes a tensor from the stage that sends such ones, and from that stage's node") {
  using kind = tensor::kind;
  const auto s = middle_stage();
  CHECK(comes_from_its_stage(s, from(kind::activation, 0, 0), at_a0));
  CHECK(comes_from_its_stage(s, from(kind::gradient, 0, 2), at_b0));
  CHECK(comes_from_its_stage(s, from(kind::part, 1, 1), at_b0));
  CHECK(comes_from_its_stage(s, from(kind::sum, 1, 1), at_b0));
  // Another node, another stage, another pipeline, no stage at all.
  CHECK_FALSE(comes_from_its_stage(s, from(kind::activation, 0, 0), at_b0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::activation, 0, 2), at_b0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::activation, 1, 0), at_a0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::gradient, 0, 0), at_a0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::gradient, 0, ~0U), at_a0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::part, 1, 1), at_a1));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::part, ~0U, 1), at_b0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::part, 0, 1), at_a1));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::tied_part, 0, 2), at_b0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::tied_sum, 0, 0), at_a0));
  auto first = s;
  first.name.stage = 0, first.peers = {at_a0, at_b0};
  CHECK(comes_from_its_stage(first, from(kind::tied_part, 0, 2), at_b0));
  auto last = s;
  last.name.stage = 2, last.peers = {at_b0, at_b0};
  CHECK(comes_from_its_stage(last, from(kind::tied_sum, 0, 0), at_a0));
}
