#include "actors/stage_by_hand.hpp"

#include "actors/training/stage_backend.hpp"
#include "harness/scratch.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using operation_kind = gpu::operation::kind;
using tensor_kind = tensor::kind;

namespace {

/// A single stage of one pipeline on a device of its own, with one micro-batch.
stage_setup alone() {
  auto s = one_of_three(0);
  s.stages = 1;
  s.neighbours = {this_stage};
  s.microbatches = 1;
  s.order = {{stage_step::kind::forward, 0, 0}, {stage_step::kind::backward, 0, 0}};
  return s;
}

gpu::outcome with(std::vector<payload> out, double loss = 0) {
  gpu::outcome o;
  o.out = std::move(out);
  o.loss = loss;
  o.begin_s = 1;
  o.end_s = 1.5;
  return o;
}

/// The order of `alone` once, up to the end of the update.
void iterate(stage_by_hand& s, double loss = 0) {
  s.finish(with({}, loss));
  s.finish(with({}));
  s.finish(with({}));
}

}  // namespace

TEST_CASE("a stage reports that it is ready, and begins nothing before it is told to run") {
  stage_by_hand s{one_of_three(1)};
  const auto ready = s.report();
  CHECK(ready.name == s.setup.name);
  CHECK(ready.incarnation == 3);
  CHECK(ready.iteration == 0);
  CHECK(ready.saved == 0);
  CHECK(ready.why.text.empty());
  s.activation(0, 0);
  s.advance(1);
  CHECK(s.sent().empty());
}

TEST_CASE("a simulated stage begins each step when its input is there, and sends its result on") {
  auto setup = one_of_three(1);
  setup.forward.pairs = setup.backward.pairs = 1;
  stage_by_hand s{setup};
  s.report();
  s.run(1);
  s.advance(0.3);
  CHECK(s.take<tensor>().empty());
  s.activation(0, 1);  // of the second forward: the first waits still
  s.advance(0.3);
  CHECK(s.take<tensor>().empty());
  s.activation(0, 0);
  s.advance(0.12);
  auto sent = s.take<tensor>();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].what == tensor_kind::activation);
  CHECK(sent[0].from == setup.name);
  CHECK(sent[0].to_stage == 2);
  CHECK(sent[0].to_pipeline == 0);
  CHECK(sent[0].iteration == 0);
  CHECK(sent[0].microbatch == 0);
  CHECK(sent[0].bytes == 1000);
  CHECK(sent[0].path.rank == 4);
  s.advance(0.1);
  sent = s.take<tensor>();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].microbatch == 1);
  CHECK(sent[0].path.rank == 5);
  // It restores the first micro-batch without input, and waits for its gradient.
  s.advance(0.3);
  CHECK(s.take<tensor>().empty());
  s.gradient(0, 0);
  s.advance(0.21);
  sent = s.take<tensor>();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].what == tensor_kind::gradient);
  CHECK(sent[0].to_stage == 0);
  CHECK(sent[0].bytes == 1000);
  CHECK(sent[0].path.rank == 6);
  s.take<stage_report>();  // that it is ready, again
  s.gradient(0, 1);
  s.advance(0.3);
  const auto r = s.report();
  CHECK(r.iteration == 1);
  CHECK(r.max_in_flight == 2);
  CHECK(r.sent_bytes == 4 * 1000);
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
  stage_by_hand s{setup};
  s.run(1);
  s.report();
  auto over_wan = s.tensor_of(tensor_kind::activation, 0, 0);
  over_wan.path.pairs = 1;
  over_wan.sent_s -= 0.25;
  s.hear(over_wan);
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

TEST_CASE("tensors of this iteration and the next are taken, once, and of no other") {
  stage_by_hand s{one_of_three(1)};
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
  stage_by_hand s{setup, {.real = true}};
  s.run(1);
  for (const auto m : {0u, 1u}) s.activation(0, m, s.bytes(10 + m));
  REQUIRE(s.device->current());
  CHECK(s.device->current()->what == operation_kind::forward);
  CHECK(s.device->current()->in.at(0).bytes().size() == 10);
  CHECK_FALSE(s.device->current()->keep);  // a recompute follows
  s.activation(0, 0, s.bytes(99));         // again: it is under way
  s.finish(with({s.bytes(30)}));
  const auto sent = s.take<tensor>();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].bytes == 30);
  CHECK(s.device->current()->in.at(0).bytes().size() == 11);
  s.finish(with({s.bytes(30)}));
  CHECK(s.device->current()->what == operation_kind::recompute);
  CHECK(s.device->current()->in.empty());
  s.finish();
  CHECK(s.device->current() == nullptr);
  s.gradient(0, 0, s.bytes(40));
  CHECK(s.device->current()->what == operation_kind::backward);
  CHECK(s.device->current()->in.at(0).bytes().size() == 40);
  CHECK_FALSE(s.device->current()->last_backward);
  s.finish(with({s.bytes(50)}));
  s.gradient(0, 1, s.bytes(40));
  s.finish();
  s.finish(with({s.bytes(50)}));
  CHECK(s.device->current()->what == operation_kind::update);
  CHECK(s.device->current()->scale == 0.5);
  CHECK(s.device->current()->in.empty());
  auto done = with({});
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
    stage_by_hand s{setup, {.real = true}};
    s.run(1);
    REQUIRE(s.device->current());
    REQUIRE(s.device->current()->in.size() == 1);
    CHECK(s.device->current()->in[0].bytes().size() == 1);
    s.finish(with({s.bytes(30)}, 5));
    CHECK(s.device->current()->microbatch == 1);
  }
  setup = one_of_three(2);
  setup.backend = "cpu";
  setup.order = {{stage_step::kind::forward, 0, 0},
                 {stage_step::kind::backward, 0, 0},
                 {stage_step::kind::forward, 1, 0},
                 {stage_step::kind::backward, 1, 0}};
  stage_by_hand s{setup, {.real = true}};
  s.run(1);
  for (const auto m : {0u, 1u}) s.activation(0, m, s.bytes(10));
  REQUIRE(s.device->current());
  REQUIRE(s.device->current()->in.size() == 2);
  CHECK(s.device->current()->in[0].bytes().size() == 10);
  CHECK(s.device->current()->in[1].bytes().size() == 100);
  CHECK(s.device->current()->keep);
  s.finish(with({}, 3));
  CHECK(s.device->current()->what == operation_kind::backward);
  CHECK(s.device->current()->in.empty());
  s.finish(with({s.bytes(20)}));
  CHECK(s.device->current()->in[1].bytes().size() == 101);
  s.finish(with({}, 4));
  s.finish(with({s.bytes(20)}));
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

TEST_CASE("iterations are saved as often as the job asks, and the last one") {
  const troupe::test::scratch directory;
  REQUIRE(open_checkpoints(directory.path(), lease_of_stage));
  auto setup = alone();
  setup.backend = "cpu";
  setup.how.checkpoint = directory.path();
  setup.how.checkpoint_every = 2;
  setup.iterations = 3;
  stage_by_hand s{setup, {.real = true}};
  s.run(3);
  iterate(s);
  CHECK(s.report().saved == 0);
  iterate(s);
  REQUIRE(s.device->current());
  CHECK(s.device->current()->what == operation_kind::save);
  CHECK(s.device->current()->path == checkpoint_path(directory.path(), 2));
  CHECK(s.take<stage_report>().empty());  // only when it is saved
  s.finish();
  auto r = s.report();
  CHECK(r.iteration == 2);
  CHECK(r.saved == 2);
  CHECK(s.over().empty());
  iterate(s);
  CHECK(s.device->current()->what == operation_kind::save);
  s.finish();
  r = s.report();
  CHECK(r.iteration == 3);
  CHECK(r.saved == 3);
  REQUIRE(s.over().size() == 1);
  CHECK(s.over()[0].how == part_report::state::succeeded);
  CHECK_FALSE(s.over()[0].trainer);
  CHECK(s.over()[0].who == setup.name);
  CHECK(s.device->current() == nullptr);
}

TEST_CASE("another pipeline than the first saves nothing, and a lease that is replaced neither") {
  const troupe::test::scratch directory;
  REQUIRE(open_checkpoints(directory.path(), lease_of_stage));
  auto setup = alone();
  setup.backend = "cpu";
  setup.how.checkpoint = directory.path();
  setup.how.checkpoint_every = 1;
  {
    auto second = setup;
    second.name.pipeline = 1;
    second.peers = {peer_of_stage, this_stage};
    stage_by_hand s{second, {.real = true}};
    s.run(1);
    iterate(s);
    const auto r = s.report();
    CHECK(r.iteration == 1);
    CHECK(r.saved == 0);
    CHECK(s.device->current() == nullptr);
  }
  stage_by_hand s{setup, {.real = true}};
  s.run(1);
  REQUIRE(open_checkpoints(directory.path(), lease_of_stage + 1));
  iterate(s);
  CHECK(s.device->current() == nullptr);
  CHECK(s.report().why.code == reason::kind::stale);
}

TEST_CASE("a simulated stage has saved when a checkpoint is due, and no sooner") {
  auto setup = alone();
  setup.how.checkpoint_every = 2;
  stage_by_hand s{setup};
  s.run(1);
  s.advance(1);
  CHECK(s.report().saved == 0);
  s.run(2);
  s.advance(1);
  CHECK(s.report().saved == 2);
}

TEST_CASE("a training that resumes begins with the checkpoint and counts from there") {
  auto setup = alone();
  setup.backend = "cpu";
  setup.how.checkpoint = "/somewhere";
  setup.first_iteration = 2;
  stage_by_hand s{setup, {.real = true}};
  CHECK(s.take<stage_report>().empty());
  REQUIRE(s.device->current());
  CHECK(s.device->current()->what == operation_kind::load);
  CHECK(s.device->current()->path == checkpoint_path("/somewhere", 2));
  s.run(4);
  CHECK(s.device->submitted.size() == 1);  // it is loading
  s.finish();
  const auto ready = s.report();
  CHECK(ready.iteration == 2);
  CHECK(ready.saved == 2);
  CHECK(s.device->current()->what == operation_kind::forward);
  CHECK(s.device->current()->in.at(0).bytes().size() == 3);  // of the third iteration
}

TEST_CASE("a simulated stage is ready after its start, which takes a slow node longer") {
  for (const double slowdown : {1.0, 3.0}) {
    stage_by_hand s{one_of_three(1), {.start_s = 2, .slowdown = slowdown}};
    s.advance(2 * slowdown - 0.1);
    CHECK(s.take<stage_report>().empty());
    s.advance(0.2);
    CHECK(s.take<stage_report>().size() == 1);
    s.run(1);
    s.activation(0, 0);
    s.advance(0.1 * slowdown - 0.01);
    CHECK(s.take<tensor>().empty());
    s.advance(0.02);
    CHECK(s.take<tensor>().size() == 1);
  }
}

TEST_CASE("a device that cannot be created is the stage's failure, thrown or returned") {
  for (const bool thrown : {false, true}) {
    stage_by_hand s{one_of_three(1), {.create = [thrown]() -> expected<stage_backend> {
                      if (thrown) throw std::runtime_error{"no such thing"};
                      return refuse(reason::kind::infeasible, "no such device");
                    }}};
    const auto r = s.report();
    CHECK(r.why.text == (thrown ? "setup failed: no such thing" : "no such device"));
    s.run(1);
    s.activation(0, 0);
    s.advance(1);
    CHECK(s.take<tensor>().empty());
    CHECK(s.over().empty());
  }
}

TEST_CASE("a stage that fails says why, again when it is asked, and does nothing any more") {
  auto setup = alone();
  setup.backend = "cpu";
  stage_by_hand s{setup, {.real = true}};
  s.run(2);
  s.report();
  s.fail(reason::kind::device_lost, "the GPU is gone");
  auto r = s.report();
  CHECK(r.why.text == "the GPU is gone");
  CHECK(r.iteration == 0);
  REQUIRE(s.over().size() == 1);
  CHECK(is_lost_device(s.over()[0]));
  CHECK(s.over()[0].detail == "the GPU is gone");
  s.run(2);
  r = s.report();
  CHECK(r.why.text == "the GPU is gone");
  CHECK(s.device->submitted.size() == 1);
  stage_by_hand other{setup, {.real = true}};
  other.run(2);
  other.fail(reason::kind::unavailable, "something else");
  CHECK(other.over().empty());
}

TEST_CASE("reports are repeated with every run until they are acknowledged") {
  stage_by_hand s{one_of_three(1)};
  s.run(1);
  s.complete(0);
  s.take<stage_report>();
  auto run = s.run_until(1);
  s.say(run);
  auto all = s.take<stage_report>();
  REQUIRE(all.size() == 2);
  CHECK(all[0].iteration == 0);
  CHECK(all[1].iteration == 1);
  run.acknowledged = 1;
  s.say(run);
  all = s.take<stage_report>();
  REQUIRE(all.size() == 1);
  CHECK(all[0].iteration == 1);
  run.acknowledged = 2;
  s.say(run);
  CHECK(s.take<stage_report>().empty());
  run.acknowledged = 0;  // an old message
  s.say(run);
  CHECK(s.take<stage_report>().empty());
}

TEST_CASE("a run of another trainer is not followed, an older one does not take iterations back") {
  stage_by_hand s{one_of_three(1)};
  auto foreign = s.run_until(2);
  foreign.incarnation = 4;
  s.report();
  s.say(foreign);
  CHECK(s.take<stage_report>().empty());
  s.activation(0, 0);
  s.advance(0.5);
  CHECK(s.take<tensor>().empty());
  auto any = s.run_until(2);
  any.incarnation = 0;
  s.say(any);
  s.run(1);
  s.complete(0);
  s.complete(1);
  CHECK(s.report().iteration == 2);
}

TEST_CASE("a report says when the latest message of the trainer left, and when it arrived") {
  auto setup = one_of_three(1);
  setup.sent_s = 50;
  stage_by_hand s{setup};
  CHECK(s.report().request_sent_s == 50);
  auto run = s.run_until(1);
  run.sent_s = 60;
  run.ahead_s = 100;
  const double said_s = s.now_s();
  s.say(run);
  auto r = s.report();
  CHECK(r.request_sent_s == 60);
  CHECK(r.received_s == Approx(said_s).margin(1e-6));
  CHECK(r.replied_s == Approx(said_s).margin(1e-6));
  run.sent_s = 55;  // an older message
  run.ahead_s = 7;
  s.say(run);
  CHECK(s.report().request_sent_s == 60);
  // Its times are on the trainer's clock, which is 100 s behind.
  s.complete(0);
  r = s.report();
  CHECK(r.end_s < s.now_s() - 100);
  CHECK(r.begin_s == Approx(said_s - 100).margin(0.1));
}

TEST_CASE("a new order counts from the next iteration, and steps that there are not are refused") {
  auto run_order = [](stage_by_hand& s, std::uint64_t until) {
    auto r = s.run_until(until);
    r.order = s.setup.order;
    std::swap(r.order[0], r.order[1]);
    r.forward = s.setup.forward;
    r.backward = s.setup.backward;
    r.forward.pairs = 2;
    return r;
  };
  stage_by_hand s{one_of_three(1)};
  s.say(run_order(s, 1));
  for (const auto m : {0u, 1u}) s.activation(0, m);
  s.advance(0.12);
  auto sent = s.take<tensor>();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].microbatch == 1);
  CHECK(sent[0].path.pairs == 2);
  // In the middle of an iteration it keeps its order.
  auto other = s.run_until(2);
  other.order = s.setup.order;
  s.say(other);
  s.complete(0);
  s.take<tensor>();
  for (const auto m : {0u, 1u}) s.activation(1, m);
  s.advance(0.12);
  sent = s.take<tensor>();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].microbatch == 1);
  auto wrong = s.run_until(3);
  wrong.order = {{stage_step::kind::forward, 2, 0}};
  s.take<stage_report>();
  s.say(wrong);
  CHECK(s.report().why.code == reason::kind::malformed);
}

TEST_CASE("a stage that is told to halt ends the iteration that it has begun, and no other") {
  stage_by_hand s{one_of_three(1)};
  s.run(4);
  s.activation(0, 0);
  auto halt = s.run_until(4);
  halt.halt = true;
  s.take<stage_report>();
  s.say(halt);
  auto r = s.report();
  REQUIRE(r.halts_at);
  CHECK(*r.halts_at == 1);
  CHECK(r.iteration == 0);
  s.run(4);  // older than the halt
  s.complete(0);
  CHECK(s.report().iteration == 1);
  s.take<tensor>();
  s.activation(1, 0);
  s.advance(0.5);
  CHECK(s.take<tensor>().empty());
  // The trainer names a later one: it goes on to that, and saves it.
  halt.save = 2;
  s.say(halt);
  s.complete(1);
  r = s.report();
  CHECK(r.iteration == 2);
  CHECK(r.saved == 2);
  s.take<tensor>();
  s.activation(2, 0);
  s.advance(0.5);
  CHECK(s.take<tensor>().empty());
}

TEST_CASE("a stage that is told to halt between iterations halts there, and saves when asked") {
  const troupe::test::scratch directory;
  REQUIRE(open_checkpoints(directory.path(), lease_of_stage));
  auto setup = alone();
  setup.backend = "cpu";
  setup.how.checkpoint = directory.path();
  stage_by_hand s{setup, {.real = true}};
  s.run(1);
  iterate(s);
  s.take<stage_report>();
  auto halt = s.run_until(1);
  halt.halt = true;
  s.say(halt);
  CHECK(s.report().halts_at == 1u);
  CHECK(s.device->current() == nullptr);
  halt.save = 1;
  s.say(halt);
  REQUIRE(s.device->current());
  CHECK(s.device->current()->what == operation_kind::save);
  const auto count = s.device->submitted.size();
  s.say(halt);  // again
  s.finish();
  CHECK(s.report().saved == 1);
  s.say(halt);
  CHECK(s.report().saved == 1);
  CHECK(s.device->submitted.size() == count);
}

TEST_CASE("a stage whose part is over executes nothing, and sends again what is asked for") {
  auto setup = one_of_three(1);
  setup.backend = "cpu";
  stage_by_hand s{setup, {.real = true}};
  s.run(1);
  s.activation(0, 0, s.bytes(10));
  s.finish(with({s.bytes(30)}));
  s.release();
  s.activation(0, 1, s.bytes(10));
  CHECK(s.device->submitted.size() == 1);
  s.take<tensor>();
  s.advance(2);
  tensor_request r;
  r.from = {lease_of_stage, 0, 2};
  r.to_stage = 1;
  r.microbatches = {0, 1};
  s.ask(r);
  CHECK(s.take<tensor>().size() == 1);
}

TEST_CASE("tensors to a stage of the same node take the node's own link") {
  auto setup = one_of_three(1);
  setup.neighbours = {this_stage, this_stage, after_stage};
  stage_by_hand s{setup};
  s.run(1);
  s.complete(0);
  CHECK(s.report().iteration == 1);
  CHECK(s.take<tensor>().size() == 2);  // activations to the next node
  REQUIRE(s.local().size() == 2);
  for (const auto& m : s.local()) {
    REQUIRE(std::holds_alternative<tensor>(m));
    CHECK(std::get<tensor>(m).what == tensor_kind::gradient);
  }
}

TEST_CASE("what a tensor costs hosts is added when it comes from another datacenter") {
  auto setup = one_of_three(1);
  setup.costs.handling_s = 0.5;
  stage_by_hand s{setup};
  s.run(1);
  auto t = s.tensor_of(tensor_kind::activation, 0, 0);
  t.path.pairs = 1;
  s.hear(t);
  s.advance(0.55);
  CHECK(s.take<tensor>().empty());
  s.advance(0.1);
  CHECK(s.take<tensor>().size() == 1);
  s.activation(0, 1);
  s.advance(0.15);
  CHECK(s.take<tensor>().size() == 1);
}
