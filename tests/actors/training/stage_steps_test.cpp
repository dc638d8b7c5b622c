#include "actors/training/stage_fixture.hpp"

#include <algorithm>

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using tensor_kind = tensor::kind;

TEST_CASE("a stage reports that it is ready, and begins nothing before it is told to run") {
  stage_fixture s{one_of_three(1)};
  const auto ready = s.report();
  CHECK(ready.name == s.setup.name);
  CHECK(ready.incarnation == 3);
  CHECK(ready.iteration == 0);
  CHECK(ready.saved == 0);
  CHECK(ready.why.text.empty());
  s.activation(0, 0);
  s.advance(1);
  CHECK(s.sent.empty());
}

TEST_CASE("a simulated stage begins each step when its input is there, and sends its result on") {
  auto setup = one_of_three(1);
  setup.forward.pairs = setup.backward.pairs = 1;
  stage_fixture s{setup};
  s.report();
  s.run(1);
  s.advance(0.3);
  CHECK(s.take<tensor>().empty());
  s.activation(0, 1);  // of the second forward: the first waits still
  s.advance(0.3);
  CHECK(s.take<tensor>().empty());
  s.activation(0, 0);
  s.advance(0.12);
  auto sent = s.only<tensor>();
  CHECK(sent.what == tensor_kind::activation);
  CHECK(sent.from == setup.name);
  CHECK(sent.to_stage == 2);
  CHECK(sent.to_pipeline == 0);
  CHECK(sent.iteration == 0);
  CHECK(sent.microbatch == 0);
  CHECK(sent.bytes == 1000);
  CHECK(sent.path.turn == 4);
  s.advance(0.1);
  sent = s.only<tensor>();
  CHECK(sent.microbatch == 1);
  CHECK(sent.path.turn == 5);
  // It restores the first micro-batch without input, and waits for its gradient.
  s.advance(0.3);
  CHECK(s.take<tensor>().empty());
  s.gradient(0, 0);
  s.advance(0.21);
  sent = s.only<tensor>();
  CHECK(sent.what == tensor_kind::gradient);
  CHECK(sent.to_stage == 0);
  CHECK(sent.bytes == 1000);
  CHECK(sent.path.turn == 6);
  s.take<stage_report>();  // that it is ready, again
  s.gradient(0, 1);
  s.advance(0.3);
  const auto r = s.report();
  CHECK(r.iteration == 1);
  CHECK(r.max_in_flight == 2);
  CHECK(r.sent_bytes == 4 * 1000 + 2 * 8);  // and its words about the update
  CHECK(r.busy_s == Approx(2 * (0.1 + 0.05 + 0.2)));
  CHECK(r.loss == 0);
  CHECK(r.measured.forward_s == Approx(0.1).margin(1e-6));
  CHECK(r.measured.recompute_s == Approx(0.05).margin(1e-6));
  CHECK(r.measured.backward_s == Approx(0.2).margin(1e-6));
  CHECK(r.measured.update_s == Approx(0.03).margin(1e-6));
  CHECK(r.measured.activation_bytes == 1000);
  CHECK(r.measured.gradient_bytes == 4000);
  CHECK(r.measured.tied_bytes == 0);
  CHECK(r.end_s > r.begin_s);
  CHECK(r.tasks.empty());
  // It may do no second iteration.
  CHECK(s.take<tensor>().size() == 1);
  s.activation(1, 0);
  s.advance(1);
  CHECK(s.take<tensor>().empty());
}

TEST_CASE("a stage says when each of its tasks began and ended, if it is to be traced") {
  auto setup = one_of_three(1);
  setup.trace = true;
  stage_fixture s{setup};
  s.run(1);
  s.report();
  auto over_wan = s.tensor_of(tensor_kind::activation, 0, 0);
  over_wan.path.pairs = 1;
  over_wan.sent_s -= 0.25;
  s.receive(over_wan);
  s.activation(0, 1);
  for (const auto m : {0u, 1u}) s.gradient(0, m);
  s.advance(1.5);
  const auto r = s.report();
  std::vector<int> what;
  for (const auto& t : r.tasks) what.push_back(t.what);
  CHECK(what == std::vector<int>{0, 0, 1, 2, 1, 2, 4, 6});
  const double took_s[] = {0.1, 0.1, 0.05, 0.2, 0.05, 0.2, 0.03, 0.25};
  for (std::size_t i = 0; i < r.tasks.size(); ++i)
    CHECK(r.tasks[i].end_s - r.tasks[i].begin_s == Approx(took_s[i]).margin(0.002));
  CHECK(r.tasks[1].microbatch == 1);
  CHECK(r.measured.wan_s == Approx(0.25).margin(0.002));
}

TEST_CASE("a tensor that comes again is not traced again") {
  auto setup = one_of_three(1);
  setup.trace = true;
  stage_fixture s{setup};
  s.run(1);
  for (const auto what : {tensor_kind::activation, tensor_kind::gradient}) {
    auto t = s.tensor_of(what, 0, 0);
    t.path.pairs = 1;
    for (int i = 0; i < 3; ++i) s.receive(t);
  }
  s.activation(0, 1);
  s.gradient(0, 1);
  s.advance(1.5);
  const auto r = s.report();
  REQUIRE(r.iteration == 1);
  CHECK(std::count_if(r.tasks.begin(), r.tasks.end(), [](const auto& t) {
          return t.what >= index_of(task_kind::activation_transfer);
        }) == 2);
}

TEST_CASE("tensors of this iteration and the next are taken, once, and of no other") {
  stage_fixture s{one_of_three(1)};
  s.run(2);
  s.report();
  for (const auto m : {0u, 1u}) {
    s.activation(2, m);  // neither this iteration nor the next
    s.activation(0, m + 2);
  }
  s.advance(0.5);
  CHECK(s.take<tensor>().empty());
  for (const auto m : {0u, 1u}) s.activation(1, m);
  s.complete(0);
  CHECK(s.report().iteration == 1);
  // The next iteration's activations were there already; the gradients of the first are too old.
  CHECK(s.take<tensor>().size() == 6);
  for (const auto m : {0u, 1u}) s.gradient(0, m);
  s.advance(1);
  CHECK(s.take<stage_report>().empty());
  for (const auto m : {0u, 1u}) s.gradient(1, m);
  s.advance(1);
  CHECK(s.report().iteration == 2);
}

TEST_CASE("a device gets tokens, activations and gradients, and says of which steps it keeps") {
  auto setup = one_of_three(1);
  setup.backend = "cpu";
  stage_fixture s{setup, {.real = true}};
  s.run(1);
  for (const auto m : {0u, 1u}) s.activation(0, m, s.bytes(10 + m));
  CHECK(s.executes<op::forward>().input.bytes().size() == 10);
  CHECK_FALSE(s.executes<op::forward>().keep);  // a recompute follows
  s.activation(0, 0, s.bytes(99));              // again: it is under way
  s.finish(result_with({s.bytes(30)}));
  CHECK(s.only<tensor>().bytes == 30);
  CHECK(s.executes<op::forward>().input.bytes().size() == 11);
  s.finish(result_with({s.bytes(30)}));
  CHECK(s.device->current<op::recompute>());
  s.finish();
  CHECK(s.device->is_idle());
  s.gradient(0, 0, s.bytes(40));
  CHECK(s.executes<op::backward>().gradient.bytes().size() == 40);
  CHECK_FALSE(s.executes<op::backward>().last);
  s.finish(result_with({s.bytes(50)}));
  s.gradient(0, 1, s.bytes(40));
  s.finish();
  s.finish(result_with({s.bytes(50)}));
  CHECK(s.executes<op::update>().scale == 0.5);
  CHECK(s.executes<op::update>().sums.empty());
  auto done = result_with({});
  done.squared_norm = 9;
  s.finish(done);
  const auto r = s.report();
  CHECK(r.iteration == 1);
  CHECK(r.squared_norm == 9);
  CHECK(r.busy_s == Approx(4 * 0.5));        // its restoring took no time
  CHECK(r.measured.activation_bytes == 30);  // of what it sends forward
}

TEST_CASE("the first stage gets tokens and the last one targets, and the loss is their mean") {
  auto setup = one_of_three(0);
  setup.backend = "cpu";
  {
    stage_fixture s{setup, {.real = true}};
    s.run(1);
    CHECK(s.executes<op::forward>().input.bytes().size() == 1);
    CHECK(s.executes<op::forward>().targets.empty());
    s.finish(result_with({s.bytes(30)}, 5));
    CHECK(s.executes<op::forward>().microbatch == 1);
  }
  setup = one_of_three(2);
  setup.backend = "cpu";
  setup.order = {{stage_step::kind::forward, 0, 0},
                 {stage_step::kind::backward, 0, 0},
                 {stage_step::kind::forward, 1, 0},
                 {stage_step::kind::backward, 1, 0}};
  stage_fixture s{setup, {.real = true}};
  s.run(1);
  for (const auto m : {0u, 1u}) s.activation(0, m, s.bytes(10));
  CHECK(s.executes<op::forward>().input.bytes().size() == 10);
  CHECK(s.executes<op::forward>().targets.bytes().size() == 100);
  CHECK(s.executes<op::forward>().keep);
  s.finish(result_with({}, 3));
  CHECK(s.executes<op::backward>().gradient.empty());
  s.finish(result_with({s.bytes(20)}));
  CHECK(s.executes<op::forward>().targets.bytes().size() == 101);
  s.finish(result_with({}, 4));
  s.finish(result_with({s.bytes(20)}));
  s.finish();
  const auto r = s.report();
  CHECK(r.loss == 3.5);
  CHECK(r.max_in_flight == 1);
  CHECK(r.measured.activation_bytes == 20);
  const auto sent = s.take<tensor>();
  REQUIRE(sent.size() == 2);
  for (const auto& t : sent) {
    CHECK(t.what == tensor_kind::gradient);
    CHECK(t.to_stage == 1);
  }
}

TEST_CASE("a stage whose part is over executes nothing, and sends again what is asked for") {
  auto setup = one_of_three(1);
  setup.backend = "cpu";
  stage_fixture s{setup, {.real = true}};
  s.run(1);
  s.activation(0, 0, s.bytes(10));
  s.finish(result_with({s.bytes(30)}));
  s.post(release_device{});
  s.activation(0, 1, s.bytes(10));
  CHECK(s.device->submitted.size() == 1);
  s.take<tensor>();
  s.advance(2);
  tensor_request r;
  r.from = {lease_of_stage, 0, 2};
  r.to_stage = 1;
  r.microbatches = {0, 1};
  s.receive(after_stage, r);
  CHECK(s.take<tensor>().size() == 1);
}

TEST_CASE("tensors to a stage of the same node take the node's own link") {
  auto setup = one_of_three(1);
  setup.neighbours = {this_stage, this_stage, after_stage};
  stage_fixture s{setup};
  s.run(1);
  s.complete(0);
  CHECK(s.report().iteration == 1);
  CHECK(s.take<tensor>(after_stage).size() == 2);  // activations to the next node
  const auto local = s.take<tensor>(this_stage);
  REQUIRE(local.size() == 2);
  for (const auto& t : local) CHECK(t.what == tensor_kind::gradient);
}

TEST_CASE("what a tensor costs hosts is added when it comes from another datacenter") {
  auto setup = one_of_three(1);
  setup.costs.handling_s = 0.5;
  stage_fixture s{setup};
  s.run(1);
  auto t = s.tensor_of(tensor_kind::activation, 0, 0);
  t.path.pairs = 1;
  s.receive(t);
  s.advance(0.55);
  CHECK(s.take<tensor>().empty());
  s.advance(0.1);
  CHECK(s.take<tensor>().size() == 1);
  s.activation(0, 1);
  s.advance(0.15);
  CHECK(s.take<tensor>().size() == 1);
}

TEST_CASE("the gradients of a tied embedding are part of all, and count once") {
  auto setup = one_of_three(1);
  setup.costs.tied_bytes = 500;
  stage_fixture s{setup};
  s.run(1);
  s.complete(0);
  const auto r = s.report();
  CHECK(r.measured.gradient_bytes == 4000);
  CHECK(r.measured.tied_bytes == 500);
}

TEST_CASE("a transfer takes no longer than its iteration, whatever clocks say") {
  for (const double before_s : {-100.0, 100.0}) {
    stage_fixture s{one_of_three(1)};
    s.run(1);
    auto t = s.tensor_of(tensor_kind::activation, 0, 0);
    t.path.pairs = 1;
    t.sent_s -= before_s;
    s.receive(t);
    s.complete(0);
    const auto r = s.report();
    CHECK(r.measured.wan_s == Approx(before_s < 0 ? 0 : r.end_s - r.begin_s));
  }
}

TEST_CASE("what a tensor took is not known before the trainer has told the clocks' difference") {
  stage_fixture s{one_of_three(1)};
  auto t = s.tensor_of(tensor_kind::activation, 0, 1);
  t.sent_s -= 100;
  s.receive(t);
  s.run(1);
  s.advance(1);
  CHECK_FALSE(s.take<tensor_request>().empty());  // and not after 150 s
}

TEST_CASE("a message that is repeated arrived when it came first") {
  stage_fixture s{one_of_three(1)};
  auto run = s.run_until(1);
  run.sent_s = 60;
  s.run(run);
  const auto first = s.report();
  s.advance(5);
  s.run(run);
  const auto again = s.report();
  CHECK(again.received_s == first.received_s);
  CHECK(again.replied_s > first.replied_s + 4);
}

TEST_CASE("a stage is there once its device is created, and says so to its node") {
  const auto created = std::make_shared<std::atomic<bool>>(false);
  const auto device = std::make_shared<device_by_hand>();
  auto setup = one_of_three(1);
  setup.backend = "cpu";
  stage_fixture s{setup,
                  {.create = [&]() -> expected<stage_backend> {
                     CHECK_FALSE(*created);
                     return stage_backend{device, {}};
                   },
                   .created = created}};
  CHECK(*created);
  CHECK(s.report().why.text.empty());
  s.run(1);
  s.activation(0, 0, s.bytes(10));
  const auto* o = device->current<op::forward>();
  REQUIRE(o);
  CHECK(o->input.bytes().size() == 10);
}

TEST_CASE("a simulated stage writes no checkpoint, even if its job has a directory") {
  auto setup = alone();
  setup.how.checkpoint = "/nowhere/at/all";
  setup.how.checkpoint_every = 1;
  stage_fixture s{setup};
  s.run(1);
  s.advance(1);
  const auto r = s.report();
  CHECK(r.why.text.empty());
  CHECK(r.iteration == 1);
  CHECK(r.saved == 1);
}

TEST_CASE("a group that is named after the first step is not joined") {
  auto setup = one_of_three(1);
  setup.backend = "cuda";
  setup.pipelines = 2;
  setup.peers = {this_stage, peer_of_stage};
  stage_fixture s{setup, {.real = true}};
  s.finish(result_with({s.bytes(3)}));
  s.run(1);
  s.activation(0, 0, s.bytes(10));
  s.finish(result_with({s.bytes(10)}));
  REQUIRE(s.device->is_idle());
  auto late = s.run_until(1);
  late.communicator_id = {0, 0, 0};
  s.run(late);
  CHECK(s.device->is_idle());
}
