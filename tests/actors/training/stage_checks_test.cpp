#include "actors/training/stage/stage_checks.hpp"

#include <catch2/catch.hpp>

#include "runtime/world.hpp"

using namespace troupe;
using namespace troupe::actors;
using kind = tensor::kind;

namespace {

constexpr address at_a0 = node_address(0), at_a1 = node_address(1), at_b0 = node_address(2);

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

TEST_CASE("a stage accepts requests for a tensor only from its receiver, on the receiver's node") {
  const auto s = middle_stage();
  CHECK(is_asked_by_its_stage(s, asking(kind::activation, 0, 2), at_b0));
  CHECK(is_asked_by_its_stage(s, asking(kind::gradient, 0, 0), at_a0));
  CHECK(is_asked_by_its_stage(s, asking(kind::partial, 1, 1), at_b0));
  CHECK(is_asked_by_its_stage(s, asking(kind::sum, 1, 1), at_b0));
  // Another node, another stage, another pipeline, no stage at all, too many micro-batches.
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::activation, 0, 2), at_a0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::activation, 0, 0), at_a0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::activation, 1, 2), at_b0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::gradient, 0, 2), at_b0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::gradient, 0, ~0U), at_a0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::partial, 1, 1), at_a1));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::partial, ~0U, 1), at_b0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::sum, 0, 1), at_a1));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::tied_partial, 0, 0), at_a0));
  CHECK_FALSE(is_asked_by_its_stage(s, asking(kind::tied_sum, 0, 2), at_b0));
  auto many = asking(kind::activation, 0, 2);
  many.microbatches.assign(s.microbatches + 1, 0);
  CHECK_FALSE(is_asked_by_its_stage(s, many, at_b0));
  auto first = s;
  first.name.stage = 0, first.peers = {at_a0, at_b0};
  CHECK(is_asked_by_its_stage(first, asking(kind::tied_sum, 0, 2), at_b0));
  auto last = s;
  last.name.stage = 2, last.peers = {at_b0, at_b0};
  CHECK(is_asked_by_its_stage(last, asking(kind::tied_partial, 0, 0), at_a0));
  auto alone = first;
  alone.stages = 1;
  CHECK_FALSE(is_asked_by_its_stage(alone, asking(kind::tied_sum, 0, 0), at_a0));
}

TEST_CASE("a setup that contradicts itself or the lease is refused") {
  REQUIRE(check_setup(middle_stage(), a_part()));
  const auto refused = [](auto&& spoil, const std::string& why = {}) {
    auto s = middle_stage();
    spoil(s);
    const auto ok = check_setup(s, a_part());
    REQUIRE_FALSE(ok);
    if (!why.empty()) CHECK(ok.error().text == why);
  };
  const std::string there = ": there are 3 stages in 2 pipelines";
  refused([](stage_setup& s) { s.name.stage = 3; }, "stage 3 of pipeline 0" + there);
  refused([](stage_setup& s) { s.name.pipeline = 2; }, "stage 1 of pipeline 2" + there);
  refused([](stage_setup& s) { s.pipelines = 0; }, "a training of 3 stages in 0 pipelines");
  refused([](stage_setup& s) { s.emulate_speed = 0; }, "an invalid emulate_speed of 0");
  refused([](stage_setup& s) { s.emulate_speed = 1.5; }, "an invalid emulate_speed of 1.5");
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

TEST_CASE("steps of micro-batches that do not exist are refused, also in a later order") {
  CHECK(check_order({}, 1));
  CHECK_FALSE(check_order({{stage_step::kind::forward, 1, 0}}, 1));
  CHECK_FALSE(check_order({{stage_step::kind::recompute, ~0U, 0}}, 4));
}

TEST_CASE("only the trainer's node sets stages up, and only nodes of the lease send reports") {
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
    "a stage accepts a tensor only from the stage that sends its kind, on that stage's node") {
  const auto s = middle_stage();
  CHECK(comes_from_its_stage(s, from(kind::activation, 0, 0), at_a0));
  CHECK(comes_from_its_stage(s, from(kind::gradient, 0, 2), at_b0));
  CHECK(comes_from_its_stage(s, from(kind::partial, 1, 1), at_b0));
  CHECK(comes_from_its_stage(s, from(kind::sum, 1, 1), at_b0));
  // Another node, another stage, another pipeline, no stage at all.
  CHECK_FALSE(comes_from_its_stage(s, from(kind::activation, 0, 0), at_b0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::activation, 0, 2), at_b0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::activation, 1, 0), at_a0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::gradient, 0, 0), at_a0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::gradient, 0, ~0U), at_a0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::partial, 1, 1), at_a1));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::partial, ~0U, 1), at_b0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::partial, 0, 1), at_a1));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::tied_partial, 0, 2), at_b0));
  CHECK_FALSE(comes_from_its_stage(s, from(kind::tied_sum, 0, 0), at_a0));
  auto first = s;
  first.name.stage = 0, first.peers = {at_a0, at_b0};
  CHECK(comes_from_its_stage(first, from(kind::tied_partial, 0, 2), at_b0));
  auto last = s;
  last.name.stage = 2, last.peers = {at_b0, at_b0};
  CHECK(comes_from_its_stage(last, from(kind::tied_sum, 0, 0), at_a0));
  // Last stages of a training that heals have it of each other, too.
  auto peer = s;
  peer.name.stage = 2, peer.peers = {at_b0, at_a1};
  CHECK_FALSE(comes_from_its_stage(peer, from(kind::tied_sum, 1, 2), at_a1));
  CHECK_FALSE(is_asked_by_its_stage(peer, asking(kind::tied_sum, 1, 2), at_a1));
  peer.view = 1;
  CHECK(comes_from_its_stage(peer, from(kind::tied_sum, 1, 2), at_a1));
  CHECK(is_asked_by_its_stage(peer, asking(kind::tied_sum, 1, 2), at_a1));
  CHECK_FALSE(comes_from_its_stage(peer, from(kind::tied_sum, 1, 2), at_a0));
  CHECK_FALSE(is_asked_by_its_stage(peer, asking(kind::tied_sum, 1, 2), at_a0));
  CHECK_FALSE(comes_from_its_stage(peer, from(kind::tied_sum, 1, 0), at_a1));
  CHECK_FALSE(comes_from_its_stage(peer, from(kind::tied_sum, 0, 2), at_b0));
}

namespace {

/// Every stage of every pipeline, and some that there are not, each on a node of its own.
struct all_stages {
  std::uint32_t stages, pipelines;

  address node_of(std::uint32_t pipeline, std::uint32_t stage) const {
    return 100 + 10 * pipeline + stage;
  }
  stage_setup setup_of(std::uint32_t pipeline, std::uint32_t stage) const {
    stage_setup s;
    s.name = {7, pipeline, stage};
    s.stages = stages, s.pipelines = pipelines, s.microbatches = 2;
    for (std::uint32_t k = 0; k < stages; ++k) s.neighbours.push_back(node_of(pipeline, k));
    for (std::uint32_t p = 0; p < pipelines; ++p) s.peers.push_back(node_of(p, stage));
    auto& sites = s.sites.emplace();
    for (std::uint32_t p = 0; p < pipelines; ++p) sites.datacenters.push_back(site_of(p));
    return s;
  }
  /// The first pipeline is alone in its datacenter.
  static std::uint32_t site_of(std::uint32_t pipeline) { return pipeline == 0 ? 0 : 1; }
  /// Whether a stage sends such tensors to another.
  bool sends(tensor::kind what, std::uint32_t from_p, std::uint32_t from, std::uint32_t to_p,
             std::uint32_t to) const {
    const bool same = from_p == to_p;
    switch (what) {
      case tensor::kind::activation:
        return same && to == from + 1;
      case tensor::kind::gradient:
        return same && from == to + 1;
      case tensor::kind::ready:
        return to_p == 0 && (same ? from == to + 1 : from == to);
      case tensor::kind::commit:
        return from_p == 0 && (same ? to == from + 1 : from == to);
      case tensor::kind::partial:
      case tensor::kind::sum:
      case tensor::kind::state:
        return !same && from == to;
      case tensor::kind::running:
      case tensor::kind::running_sum:
        return !same && from == to && site_of(from_p) != site_of(to_p);
      case tensor::kind::tied_partial:
        return same && from + 1 == stages && to == 0;
      case tensor::kind::tied_sum:
        return same && from == 0 && to + 1 == stages;
    }
    return false;
  }
};

}  // namespace

TEST_CASE(
    "among all stages and nodes, only a tensor's sender may send it and its receiver request it") {
  int sent = 0;
  for (const std::uint32_t stages : {2, 3, 4})
    for (const std::uint32_t pipelines : {1, 2, 3}) {
      const all_stages all{stages, pipelines};
      for (std::uint32_t p = 0; p < pipelines; ++p)
        for (std::uint32_t s = 0; s < stages; ++s) {
          const auto me = all.setup_of(p, s);
          for (const auto what :
               {kind::activation, kind::gradient, kind::partial, kind::sum, kind::tied_partial,
                kind::tied_sum, kind::ready, kind::commit, kind::running, kind::running_sum})
            for (std::uint32_t q = 0; q <= pipelines; ++q)
              for (std::uint32_t k = 0; k <= stages; ++k) {
                const bool there = q < pipelines && k < stages;
                const bool to_me = there && all.sends(what, q, k, p, s);
                const bool from_me = there && all.sends(what, p, s, q, k);
                const auto node = all.node_of(q, k);
                sent += to_me;
                CHECK(comes_from_its_stage(me, from(what, q, k), node) == to_me);
                CHECK_FALSE(comes_from_its_stage(me, from(what, q, k), node + 1));
                CHECK(is_asked_by_its_stage(me, asking(what, q, k), node) == from_me);
                CHECK_FALSE(is_asked_by_its_stage(me, asking(what, q, k), node + 1));
                auto some = asking(what, q, k);
                some.microbatches.assign(is_chunk(what) ? 1 : me.microbatches, 0);
                CHECK(is_asked_by_its_stage(me, some, node) == from_me);
                some.microbatches.push_back(0);
                CHECK_FALSE(is_asked_by_its_stage(me, some, node));
              }
        }
    }
  CHECK(sent > 100);
}

TEST_CASE("a stage computes only the program that its order names") {
  const all_stages all{2, 1};
  auto s = all.setup_of(0, 0);
  s.rows = 1;
  work_order part;
  part.train.emplace();
  part.train->program = layer_file{"/a.py", "abc", "", "", 1, 64, {}, {}};
  CHECK_FALSE(check_setup(s, part));
  s.how.program = part.train->program;
  CHECK(check_setup(s, part));
  s.how.program->file = "/b.py";
  CHECK_FALSE(check_setup(s, part));
  part.train->program.reset();
  CHECK_FALSE(check_setup(s, part));
}

TEST_CASE("a setup's sizes are limited, and the limits themselves are allowed") {
  const auto ok = [](auto&& change) {
    auto s = middle_stage();
    change(s);
    return check_setup(s, a_part()).has_value();
  };
  CHECK(ok([](stage_setup& s) { s.emulate_speed = 1; }));
  CHECK(ok([](stage_setup& s) { s.emulate_speed = 0.01; }));
  CHECK_FALSE(ok([](stage_setup& s) { s.emulate_speed = 0; }));
  CHECK_FALSE(ok([](stage_setup& s) { s.emulate_speed = 1.01; }));
  CHECK_FALSE(ok([](stage_setup& s) { s.emulate_speed = -1; }));
  CHECK(ok([](stage_setup& s) { s.order.resize(6); }));
  CHECK_FALSE(ok([](stage_setup& s) { s.order.resize(7); }));
  CHECK(ok([](stage_setup& s) { s.order.clear(); }));
  CHECK(ok([](stage_setup& s) { s.devices = {2}; }));
  CHECK_FALSE(ok([](stage_setup& s) { s.pipelines = 0; }));
  CHECK_FALSE(ok([](stage_setup& s) { s.neighbours.push_back(at_a0); }));
  constexpr std::uint32_t million = 1U << 20;
  for (const auto n : {million, million + 1}) {
    CHECK((n == million) == ok([n](stage_setup& s) { s.microbatches = n; }));
    CHECK((n == million) == ok([n](stage_setup& s) {
            s.stages = n;
            s.neighbours.resize(n);
          }));
    CHECK((n == million) == ok([n](stage_setup& s) {
            s.pipelines = n;
            s.peers.resize(n);
          }));
  }
}
