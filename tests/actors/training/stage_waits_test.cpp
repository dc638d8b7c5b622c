#include "actors/training/stage_fixture.hpp"

#include <algorithm>

// A stage's requests for tensors that do not come, and its actions at the end of an iteration.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using tensor_kind = tensor::kind;

namespace {

/// The requests that it sends in a time, each with when.
std::vector<std::pair<double, tensor_request>> requests_in(stage_fixture& s, double seconds) {
  std::vector<std::pair<double, tensor_request>> all;
  const double from_s = s.now_s();
  s.advance(seconds);
  std::erase_if(s.sent, [&](const auto& m) {
    const auto* r = std::get_if<tensor_request>(&m.what);
    if (r) all.emplace_back(m.at_s - from_s, *r);
    return r != nullptr;
  });
  return all;
}

/// Two pipelines, of which this stage is in the first.
stage_setup with_a_peer(std::uint32_t s = 1) {
  auto x = one_of_three(s);
  x.pipelines = 2;
  x.peers = {this_stage, peer_of_stage};
  return x;
}

/// The same on a CPU; an iteration is one micro-batch.
stage_setup with_a_peer_and_one_microbatch() {
  auto x = with_a_peer();
  x.backend = "cpu";
  x.microbatches = 1;
  x.order = {{stage_step::kind::forward, 0, 0}, {stage_step::kind::backward, 0, 0}};
  return x;
}

/// A stage of GPUs that may join a group; an iteration is one micro-batch.
stage_setup with_a_group() {
  auto x = with_a_peer_and_one_microbatch();
  x.backend = "cuda";
  return x;
}

/// The trainer has sent the group's id, and the device is joining. Returns the message.
stage_run asked_to_join(stage_fixture& s) {
  s.finish(result_with({s.bytes(3)}));
  s.take<stage_report>();
  auto run = s.run_until(0);
  run.communicator_id = {9};
  s.run(run);
  return run;
}

/// After the passes of its first iteration.
bool gradients_are_asked_for(stage_fixture& s) {
  s.activation(0, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  s.gradient(0, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  return s.device->current<op::gradients>() != nullptr;
}

tensor from_peer(const stage_fixture& s, tensor_kind what, std::uint64_t iteration = 0) {
  auto t = s.tensor_of(what, iteration, 0);
  t.from.pipeline = 1;
  return t;
}

tensor_request asks_for(tensor_kind what, std::uint32_t stage,
                        std::vector<std::uint32_t> microbatches, std::uint64_t iteration = 0) {
  tensor_request r;
  r.what = what;
  r.from = {lease_of_stage, 0, stage};
  r.to_stage = 1;
  r.iteration = iteration;
  r.microbatches = std::move(microbatches);
  return r;
}

}  // namespace

TEST_CASE("a tensor that does not come is asked for after its time, of whoever has it") {
  auto setup = one_of_three(1);
  setup.costs.wan_s = 2;  // slower than what is expected of the bytes
  stage_fixture s{setup};
  CHECK(requests_in(s, 20).empty());  // it does not run
  s.run(1);
  auto all = requests_in(s, 3.49);
  CHECK(all.empty());
  all = requests_in(s, 0.1);
  REQUIRE(all.size() == 2);  // what it waits for, and what else it lacks
  CHECK(all[0].second.what == tensor_kind::activation);
  CHECK(all[0].second.from == setup.name);
  CHECK(all[0].second.to_stage == 0);
  CHECK(all[0].second.iteration == 0);
  CHECK(all[0].second.microbatches == std::vector<std::uint32_t>{0, 1});
  CHECK(all[0].second.older_than_s == Approx(0.5 + 1.5 * 2));
  CHECK(all[1].second.what == tensor_kind::gradient);
  CHECK(all[1].second.to_stage == 2);
  // Again after half that time.
  CHECK(requests_in(s, 1.6).empty());
  CHECK(requests_in(s, 0.1).size() == 2);
  // Only what is missing still.
  s.activation(0, 1);
  all = requests_in(s, 1.8);
  REQUIRE(all.size() == 2);
  CHECK(all[0].second.microbatches == std::vector<std::uint32_t>{0});
}

TEST_CASE("the longer a tensor does not come the more seldom it is asked for") {
  stage_fixture s{one_of_three(1)};
  s.run(1);
  const auto all = requests_in(s, 100);
  double longest_s = 0;
  for (std::size_t i = 2; i < all.size(); i += 2)
    longest_s = std::max(longest_s, all[i].first - all[i - 2].first);
  CHECK(all[0].first < 1);
  CHECK(all[2].first - all[0].first < 0.5);
  CHECK(longest_s > 100.0 / 8 * 0.7);
  CHECK(longest_s < 100.0 / 8);
}

TEST_CASE("a stage that has what it needs, or that computes, asks for nothing") {
  stage_fixture s{one_of_three(1)};
  s.run(1);
  s.activation(0, 0);
  s.activation(0, 1);
  CHECK(requests_in(s, 0.2).empty());
  // Now it waits for a gradient.
  auto all = requests_in(s, 1);
  REQUIRE_FALSE(all.empty());
  for (const auto& [at_s, r] : all) CHECK(r.what == tensor_kind::gradient);
  s.gradient(0, 0);
  s.gradient(0, 1);
  s.advance(1);
  CHECK(requests_in(s, 20).empty());  // it may do no second iteration
}

TEST_CASE("the first stage asks for gradients alone, the last one for activations alone") {
  for (const auto which : {0u, 2u}) {
    stage_fixture s{one_of_three(which)};
    s.run(1);
    const auto all = requests_in(s, 3);
    REQUIRE_FALSE(all.empty());
    for (const auto& [at_s, r] : all) {
      CHECK(r.what == (which == 0 ? tensor_kind::gradient : tensor_kind::activation));
      CHECK(r.to_stage == 1);
    }
  }
}

TEST_CASE("a stage of the same host is not asked: nothing is lost on the way from it") {
  auto setup = one_of_three(1);
  setup.neighbours = {this_stage, this_stage, this_stage};
  stage_fixture s{setup};
  s.run(1);
  CHECK(requests_in(s, 20).empty());
}

TEST_CASE("a device's stage expects a tensor to take what its bytes do on an ordinary link") {
  auto setup = one_of_three(1);
  setup.backend = "cpu";
  setup.costs.activation_bytes = 250'000'000;  // 2 s
  stage_fixture s{setup, {.real = true}};
  s.run(1);
  CHECK(requests_in(s, 3.4).empty());
  CHECK(requests_in(s, 0.2).size() == 2);
}

TEST_CASE(
    "a tensor is asked for later if those before it took longer, of this iteration or the last") {
  stage_fixture s{one_of_three(1)};
  s.run(3);
  for (const auto m : {0u, 1u}) {
    auto t = s.tensor_of(tensor_kind::activation, 0, m);
    t.sent_s -= 4;
    s.receive(t);
  }
  for (const auto m : {0u, 1u}) s.gradient(0, m);
  s.advance(0.8);
  CHECK(requests_in(s, 5.5).empty());
  CHECK_FALSE(requests_in(s, 1).empty());
}

TEST_CASE("what another stage asks for is sent once more, past the direct connection") {
  auto setup = one_of_three(1);
  setup.forward.pairs = 1;
  stage_fixture s{setup};
  s.run(1);
  s.activation(0, 0);
  s.advance(0.2);
  s.sent.clear();
  s.receive(after_stage, asks_for(tensor_kind::activation, 2, {0, 1}));
  CHECK(s.take<tensor>().empty());  // too soon: half a second
  s.advance(0.5);
  const double now_s = s.now_s();
  s.receive(after_stage, asks_for(tensor_kind::activation, 2, {0, 1}));
  REQUIRE(s.sent.size() >= 1);
  const auto& m = s.sent.back();
  REQUIRE(std::holds_alternative<tensor>(m.what));
  CHECK(m.to == after_stage);
  CHECK(m.lane == runtime::relayed_tensor_lane);
  CHECK(std::get<tensor>(m.what).microbatch == 0);
  CHECK(std::get<tensor>(m.what).sent_s == Approx(now_s).margin(0.001));
  s.activation(0, 1);
  s.gradient(0, 0);
  s.gradient(0, 1);
  s.advance(1.5);
  // Two activations, one of them again, and the word to update.
  CHECK(s.report().sent_bytes == 3 * 1000 + 8);
}

TEST_CASE("a tensor that the network did not take is sent as soon as it is asked for") {
  stage_fixture s{one_of_three(1)};
  s.run(1);
  s.net->full = {after_stage};
  s.activation(0, 0);
  s.advance(0.11);
  s.net->full.clear();
  s.sent.clear();
  s.receive(after_stage, asks_for(tensor_kind::activation, 2, {0}));
  CHECK(s.take<tensor>().size() == 1);
}

TEST_CASE("peers exchange their gradients before the update, in a simulation the bytes of them") {
  auto setup = with_a_peer();
  setup.trace = true;
  stage_fixture s{setup};
  s.run(1);
  s.complete(0);
  auto sent = s.take<tensor>();
  std::erase_if(sent, [](const auto& t) { return t.what != tensor_kind::partial; });
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].to_pipeline == 1);
  CHECK(sent[0].to_stage == 1);
  CHECK(sent[0].bytes == 2000);  // half of them
  CHECK(sent[0].path.pairs == 0);
  CHECK(s.report().iteration == 0);
  s.advance(0.5);
  s.receive(from_peer(s, tensor_kind::partial));
  CHECK(s.only<tensor>().what == tensor_kind::sum);
  s.receive(from_peer(s, tensor_kind::sum));
  s.advance(0.1);
  const auto r = s.report();
  CHECK(r.iteration == 1);
  CHECK(r.measured.gradients_s == Approx(0.01).margin(1e-6));
  const auto reduced = std::find_if(r.tasks.begin(), r.tasks.end(), [](const auto& t) {
    return t.what == index_of(task_kind::reduce);
  });
  REQUIRE(reduced != r.tasks.end());
  CHECK(reduced->end_s - reduced->begin_s > 0.5);
  CHECK(reduced->end_s - reduced->begin_s < 1.5);
}

TEST_CASE("a peer's gradients that do not come are asked for") {
  stage_fixture s{with_a_peer()};
  s.run(1);
  s.complete(0);
  s.sent.clear();
  const auto all = requests_in(s, 3);
  REQUIRE(all.size() >= 2);
  CHECK(all[0].second.what == tensor_kind::partial);
  CHECK(all[1].second.what == tensor_kind::sum);
  for (const auto& [at_s, r] : all) {
    CHECK(r.to_pipeline == 1);
    CHECK(r.to_stage == 1);
    CHECK(r.microbatches.empty());
  }
  s.receive(from_peer(s, tensor_kind::partial));
  s.receive(from_peer(s, tensor_kind::sum));
  s.advance(0.1);
  CHECK(requests_in(s, 10).empty());
}

TEST_CASE("hosts sum what their devices give them, and give back the sums with their scale") {
  const auto setup = with_a_peer_and_one_microbatch();
  stage_fixture s{setup, {.real = true}};
  s.run(1);
  s.activation(0, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  s.gradient(0, 0, s.bytes(10));
  CHECK_FALSE(s.executes<op::backward>().last);
  s.finish(result_with({s.bytes(10)}));
  CHECK(s.device->current<op::gradients>());
  s.take<tensor>();
  s.finish(result_with({s.bytes(64), payload{}}));
  CHECK(s.device->is_idle());
  CHECK(s.only<tensor>().bytes == 32);
  s.receive(from_peer(s, tensor_kind::partial), s.bytes(32));
  s.receive(from_peer(s, tensor_kind::sum), s.bytes(32));
  CHECK(s.executes<op::update>().sums.own.bytes().size() == 64);
  CHECK(s.executes<op::update>().scale == 0.5);  // one micro-batch of two pipelines
  s.finish();
  const auto r = s.report();
  CHECK(r.iteration == 1);
  CHECK(r.measured.gradient_bytes == 64);
}

TEST_CASE("gradients of another size than this stage's end the training with a sentence") {
  const auto setup = with_a_peer_and_one_microbatch();
  stage_fixture s{setup, {.real = true}};
  s.run(1);
  s.activation(0, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  s.gradient(0, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  s.finish(result_with({s.bytes(64), payload{}}));
  s.receive(from_peer(s, tensor_kind::partial), s.bytes(28));
  const auto r = s.report();
  CHECK(r.why.code == reason::kind::malformed);
  CHECK(s.device->is_idle());
}

TEST_CASE("GPUs with peers, or several that share a stage, make the id of a group") {
  const auto first_operation = [](std::uint32_t pipelines, std::uint16_t gpus,
                                  const std::string& backend) -> std::optional<gpu::operation> {
    auto setup = pipelines > 1 ? with_a_peer() : one_of_three(1);
    setup.backend = backend;
    setup.devices.clear();
    for (std::uint16_t d = 0; d < gpus; ++d) setup.devices.push_back(d);
    stage_fixture s{setup, {.real = true}};
    if (s.device->is_idle()) return {};
    return s.device->submitted.back();
  };
  CHECK_FALSE(first_operation(1, 1, "cuda"));
  CHECK_FALSE(first_operation(2, 1, "cpu"));
  CHECK(first_operation(1, 2, "cuda"));
  const auto o = first_operation(2, 1, "cuda");
  REQUIRE(o);
  const auto* made = std::get_if<op::make_communicator_id>(&o->what);
  REQUIRE(made);
  CHECK(made->rank == 0);
  CHECK(made->size == 2);
}

TEST_CASE("devices of a group sum by themselves, and tensors carry tied gradients alone") {
  auto setup = with_a_peer(0);
  setup.model.tied_head = true;
  setup.backend = "cuda";
  setup.microbatches = 2;
  setup.order = {{stage_step::kind::forward, 0, 0},
                 {stage_step::kind::forward, 1, 0},
                 {stage_step::kind::backward, 0, 0},
                 {stage_step::kind::backward, 1, 0}};
  stage_fixture s{setup, {.real = true}};
  CHECK(s.take<stage_report>().empty());
  s.finish(result_with({payload{std::vector<std::byte>(3, std::byte{9})}}));
  CHECK(s.report().communicator_id == std::vector<std::uint8_t>{9, 9, 9});
  auto run = s.run_until(1);
  run.communicator_id = {9, 9, 9};
  s.run(run);
  CHECK(s.executes<op::join_communicator>().id.bytes().size() == 3);
  CHECK(s.executes<op::join_communicator>().size == 2);
  s.run(run);  // again
  s.finish();
  CHECK(s.last<stage_report>().joined == true);
  CHECK(s.device->current<op::forward>());
  s.run(run);
  s.finish(result_with({s.bytes(10)}));
  s.finish(result_with({s.bytes(10)}));
  s.gradient(0, 0, s.bytes(10));
  CHECK_FALSE(s.executes<op::backward>().last);
  s.finish(result_with({}));
  s.gradient(0, 1, s.bytes(10));
  CHECK(s.executes<op::backward>().last);
  s.take<tensor>();
  s.finish(result_with({}));
  // It waits for the last stage's part.
  CHECK(s.device->is_idle());
  auto tied = s.tensor_of(tensor_kind::tied_partial, 0, 0);
  tied.from.stage = 2;
  s.receive(tied, s.bytes(40));
  CHECK(s.device->current<op::sum>());
  REQUIRE(s.executes<op::sum>().tied);
  CHECK(s.executes<op::sum>().tied->bytes().size() == 40);
  s.finish(result_with({s.bytes(40)}));
  const auto sent = s.only<tensor>();
  CHECK(sent.what == tensor_kind::tied_sum);
  CHECK(sent.to_stage == 2);
  s.agree(tensor_kind::ready, from_peer(s, tensor_kind::sum));
  CHECK(s.executes<op::update>().sums.empty());
  CHECK(s.executes<op::update>().scale == 0.25);
  s.finish();
  CHECK(s.report().iteration == 1);
}

TEST_CASE("a device that has no group says why, and its stage goes on through the hosts") {
  auto setup = with_a_peer();
  setup.backend = "cuda";
  stage_fixture s{setup, {.real = true}};
  s.fail(reason::kind::unavailable, "no library");
  const auto r = s.report();
  CHECK(r.fallback_reason.text == "no library");
  CHECK(r.why.text.empty());
  CHECK(r.communicator_id.empty());
  s.run(1);
  s.activation(0, 0, s.bytes(10));
  CHECK(s.device->current<op::forward>());
}

TEST_CASE("a device that cannot join its group says why, and asks for its gradients") {
  stage_fixture s{with_a_group(), {.real = true}};
  const auto run = asked_to_join(s);
  s.fail(reason::kind::invalid, "no route");
  const auto r = s.last<stage_report>();
  CHECK(r.joined == false);
  CHECK(r.fallback_reason.text == "no route");
  CHECK(r.why.text.empty());
  s.run(run);  // again
  CHECK(s.device->is_idle());
  s.run(1);
  CHECK(gradients_are_asked_for(s));
}

TEST_CASE("a device leaves its group if a peer's could not join") {
  stage_fixture s{with_a_group(), {.real = true}};
  asked_to_join(s);
  const bool late = GENERATE(true, false);  // the trainer knows before this device has joined
  if (late) s.run(1);
  s.finish();
  if (!late) s.run(1);
  CHECK(gradients_are_asked_for(s));
}

TEST_CASE("a device that dies while it joins ends the attempt") {
  const auto code = GENERATE(reason::kind::unavailable, reason::kind::worker_lost,
                             reason::kind::device_lost, reason::kind::malformed);
  stage_fixture s{with_a_group(), {.real = true}};
  asked_to_join(s);
  s.fail(code, "it is gone");
  CHECK(s.last<stage_report>().why.code == code);
}
