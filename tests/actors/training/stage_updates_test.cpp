#include "actors/training/stage_fixture.hpp"

#include <algorithm>
#include <set>

// Stages agree before they update.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using tensor_kind = tensor::kind;

TEST_CASE("a stage updates when the first one says so, to which it passes on that it can") {
  const bool clips = GENERATE(true, false);
  CAPTURE(clips);
  auto setup = one_of_three(1);
  if (clips) setup.costs.norms_s = 0.04;
  stage_fixture s{setup, {.agrees = false}};
  s.run(1);
  s.complete(0);
  CHECK(s.take<tensor>().size() == 4);  // activations and gradients
  const auto like = s.tensor_of(tensor_kind::ready, 0, 0);
  const auto behind = s.word(tensor_kind::ready, like, {lease_of_stage, 0, 2});
  const auto before = s.word(tensor_kind::commit, like, {lease_of_stage, 0, 0});
  s.receive(after_stage, behind, s.bytes(sizeof(double)));
  const auto ready = s.only<tensor>();
  CHECK(ready.what == tensor_kind::ready);
  CHECK(ready.to_stage == 0);
  CHECK(ready.bytes == sizeof(double));
  CHECK(ready.term == setup.incarnation);
  s.advance(1);
  CHECK(s.report().iteration == 0);
  for (int again = 0; again < 2; ++again) {
    s.receive(before_stage, before, s.bytes(sizeof(double)));
    const auto sent = s.take<tensor>();
    if (again) CHECK(sent.empty());
    if (!again) {
      REQUIRE(sent.size() == 1);
      CHECK(sent[0].what == tensor_kind::commit);
      CHECK(sent[0].to_stage == 2);
    }
  }
  s.advance(0.1);
  const auto r = s.report();
  CHECK(r.iteration == 1);
  CHECK(r.measured.norms_s.has_value() == clips);
  if (clips) CHECK(*r.measured.norms_s == Approx(0.04).margin(1e-6));
  CHECK(r.measured.update_s == Approx(0.03).margin(1e-6));
}

TEST_CASE("a word to update that comes again, of another trainer or too early updates nothing") {
  auto setup = one_of_three(1);
  setup.backend = "cpu";
  setup.microbatches = 1;
  setup.order = {{stage_step::kind::forward, 0, 0}, {stage_step::kind::backward, 0, 0}};
  stage_fixture s{setup, {.real = true, .agrees = false}};
  const auto word = [&](tensor_kind what, std::uint64_t iteration, std::uint64_t term) {
    auto t = s.word(what, s.tensor_of(what, iteration, 0),
                    {lease_of_stage, 0, what == tensor_kind::ready ? 2u : 0u});
    t.term = term;
    s.receive(before_stage, t, s.bytes(sizeof(double)));
  };
  const auto updates = [&] {
    return std::ranges::count_if(s.device->submitted, [](const gpu::operation& o) {
      return std::holds_alternative<op::update>(o.what);
    });
  };
  s.run(2);
  s.activation(0, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  s.gradient(0, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  word(tensor_kind::ready, 0, setup.incarnation - 1);
  word(tensor_kind::commit, 0, setup.incarnation - 1);
  CHECK(updates() == 0);
  word(tensor_kind::ready, 0, setup.incarnation);
  word(tensor_kind::commit, 0, setup.incarnation + 1);
  CHECK(updates() == 0);
  for (int again = 0; again < 3; ++again) word(tensor_kind::commit, 0, setup.incarnation);
  CHECK(updates() == 1);
  s.finish();
  word(tensor_kind::commit, 0, setup.incarnation);
  CHECK(updates() == 1);
  CHECK(s.report().iteration == 1);
  word(tensor_kind::commit, 1, setup.incarnation);  // it has not even begun
  s.activation(1, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  s.gradient(1, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  CHECK(updates() == 1);
  CHECK(s.report().why.text == "a stage is told to update before it is ready to");
}

TEST_CASE("the first stage of the first pipeline tells all to update when the last one is ready") {
  auto setup = one_of_three(0);
  setup.pipelines = 2;
  setup.peers = {this_stage, before_stage};
  stage_fixture s{setup, {.agrees = false}};
  s.run(1);
  for (const auto m : {0u, 1u}) s.gradient(0, m);
  s.advance(1.5);
  auto from_peer = s.tensor_of(tensor_kind::partial, 0, 0);
  from_peer.from.pipeline = 1;
  s.receive(from_peer);
  from_peer.what = tensor_kind::sum;
  s.receive(from_peer);
  s.take<tensor>();
  const bool peer_first = GENERATE(true, false);
  const auto behind = s.word(tensor_kind::ready, from_peer, {lease_of_stage, 0, 1});
  const auto peer = s.word(tensor_kind::ready, from_peer, {lease_of_stage, 1, 0});
  s.receive(after_stage, peer_first ? peer : behind, s.bytes(sizeof(double)));
  s.advance(1);
  CHECK(s.take<tensor>().empty());
  s.receive(after_stage, peer_first ? behind : peer, s.bytes(sizeof(double)));
  const auto sent = s.take<tensor>();
  REQUIRE(sent.size() == 2);
  for (const auto& t : sent) CHECK(t.what == tensor_kind::commit);
  CHECK(sent[0].to_stage == 1);
  CHECK(sent[0].to_pipeline == 0);
  CHECK(sent[1].to_stage == 0);
  CHECK(sent[1].to_pipeline == 1);
  s.advance(0.1);
  CHECK(s.report().iteration == 1);
}

namespace {

/// The last of three stages of a tied model, with two micro-batches, whose program clips.
stage_setup last_of_a_tied_model() {
  auto setup = one_of_three(2);
  setup.model.tied_head = true;
  setup.costs.tied_bytes = 1000;
  setup.costs.norms_s = 0.04;
  return setup;
}

}  // namespace

TEST_CASE("a tied model's last stage is ready before it has the tied sum, and updates after it") {
  const bool word_first = GENERATE(true, false);
  CAPTURE(word_first);
  stage_fixture s{last_of_a_tied_model(), {.agrees = false}};
  s.run(1);
  s.report();
  for (const auto m : {0u, 1u}) s.activation(0, m);
  s.advance(1.5);
  auto sent = s.take<tensor>();
  const auto has = [&](tensor_kind what, std::uint32_t to_stage) {
    return std::ranges::any_of(
        sent, [&](const tensor& t) { return t.what == what && t.to_stage == to_stage; });
  };
  CHECK(has(tensor_kind::tied_partial, 0));
  CHECK(has(tensor_kind::ready, 1));
  const auto receive = [&](tensor_kind what, std::uint32_t from_stage, std::size_t bytes) {
    auto t = s.tensor_of(what, 0, 0);
    t.from.stage = from_stage;
    t.bytes = bytes;
    s.receive(from_stage == 0 ? peer_of_stage : before_stage, t,
              what == tensor_kind::commit ? s.bytes(bytes) : payload{});
    s.advance(0.1);
  };
  if (word_first) receive(tensor_kind::commit, 1, sizeof(double));
  if (!word_first) receive(tensor_kind::tied_sum, 0, 1000);
  CHECK(s.take<stage_report>().empty());
  if (word_first) receive(tensor_kind::tied_sum, 0, 1000);
  if (!word_first) receive(tensor_kind::commit, 1, sizeof(double));
  CHECK(s.report().iteration == 1);
}

TEST_CASE("a tied sum whose first stage is lost after the word to update comes from a peer") {
  auto setup = last_of_a_tied_model();
  setup.pipelines = 2;
  setup.peers = {this_stage, before_stage};
  setup.view = 0;
  stage_fixture s{setup, {.agrees = false}};
  s.run(2);
  for (const auto m : {0u, 1u}) s.activation(0, m);
  s.advance(1.5);
  auto of_peer = s.tensor_of(tensor_kind::partial, 0, 0);
  of_peer.from.pipeline = 1;
  s.receive(of_peer);
  of_peer.what = tensor_kind::sum;
  s.receive(of_peer);
  of_peer.what = tensor_kind::ready;
  s.receive(before_stage, of_peer, s.bytes(sizeof(double)));
  s.advance(0.1);
  auto lost = s.run_until(2);
  lost.gather = 1;
  s.run(lost);
  REQUIRE(s.report().place);
  lost.gather.reset();
  lost.begin = view_begin{1, 1, {before_stage, before_stage, this_stage}, setup.peers, {0}};
  lost.begin->update = agreed_update{2.5, {{0, 1, {}}, {1, 1, {}}}};
  s.run(lost);
  CHECK(s.report().iteration == 0);
  s.take<tensor_request>();
  s.advance(30);
  std::set<std::pair<std::uint32_t, std::uint32_t>> asked;
  for (const auto& r : s.take<tensor_request>()) {
    CHECK(r.what == tensor_kind::tied_sum);
    asked.emplace(r.to_pipeline, r.to_stage);
  }
  CHECK(asked == std::set<std::pair<std::uint32_t, std::uint32_t>>{{0, 0}, {1, 2}});
  of_peer.what = tensor_kind::tied_sum;
  s.receive(before_stage, of_peer, {});
  s.advance(0.1);
  CHECK(s.report().iteration == 1);
  // And it has it for its peers, until it has done the next iteration.
  s.take<tensor>();
  tensor_request r;
  r.what = tensor_kind::tied_sum;
  r.from = {lease_of_stage, 1, 2};
  s.receive(before_stage, r);
  const auto given = s.take<tensor>();
  REQUIRE(given.size() == 1);
  CHECK(given[0].what == tensor_kind::tied_sum);
  CHECK(given[0].to_pipeline == 1);
  CHECK(given[0].iteration == 0);
  r.iteration = 5;
  s.receive(before_stage, r);
  CHECK(s.take<tensor>().empty());
}

TEST_CASE("a tied model's last stage asks for a tied sum that is lost after the word to update") {
  stage_fixture s{last_of_a_tied_model()};
  s.run(1);
  for (const auto m : {0u, 1u}) s.activation(0, m);
  s.advance(1.5);
  s.take<tensor_request>();
  s.advance(30);
  const auto asked = s.take<tensor_request>();
  REQUIRE_FALSE(asked.empty());
  for (const auto& r : asked) {
    CHECK(r.what == tensor_kind::tied_sum);
    CHECK(r.to_stage == 0);
  }
}
