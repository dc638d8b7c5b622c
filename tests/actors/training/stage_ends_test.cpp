#include "actors/training/stage_fixture.hpp"

#include "actors/training/device/stage_backend.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "harness/scratch.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

/// A single stage on a CPU that saves where the lease of the stage may.
struct saving_stage {
  troupe::test::scratch directory;
  stage_setup setup = alone();

  explicit saving_stage(std::uint32_t every) {
    REQUIRE(gpu::take_fence(directory.path(), lease_of_stage));
    setup.backend = "cpu";
    setup.how.checkpoint = directory.path();
    setup.how.checkpoint_every = every;
  }
};

}  // namespace

TEST_CASE("iterations are saved as often as the job asks, and the last one") {
  saving_stage saves{2};
  const auto& [directory, setup] = saves;
  saves.setup.iterations = 3;
  stage_fixture s{setup, {.real = true}};
  s.run(3);
  iterate(s);
  CHECK(s.report().saved == 0);
  iterate(s);
  CHECK(s.executes<op::save>().path == checkpoint_path(directory.path(), 2));
  CHECK(s.take<stage_report>().empty());  // only when it is saved
  s.finish();
  auto r = s.report();
  CHECK(r.iteration == 2);
  CHECK(r.saved == 2);
  CHECK(s.training_ends.empty());
  iterate(s);
  CHECK(s.device->current<op::save>());
  s.finish();
  r = s.report();
  CHECK(r.iteration == 3);
  CHECK(r.saved == 3);
  REQUIRE(s.training_ends.size() == 1);
  CHECK(s.training_ends[0].how == part_report::state::succeeded);
  CHECK_FALSE(s.training_ends[0].trainer);
  CHECK(s.training_ends[0].who == setup.name);
  CHECK(s.device->is_idle());
}

TEST_CASE("another pipeline than the first saves nothing, and a lease that is replaced neither") {
  const saving_stage saves{1};
  const auto& [directory, setup] = saves;
  {
    auto second = setup;
    second.name.pipeline = 1;
    second.pipelines = 2;
    second.peers = {peer_of_stage, this_stage};
    stage_fixture s{second, {.real = true}};
    s.run(1);
    for (int pass = 0; pass < 2; ++pass) s.finish(result_with({}));
    s.finish(result_with({s.bytes(64), payload{}}));
    for (const auto what : {tensor::kind::partial, tensor::kind::sum}) {
      auto from_first = s.tensor_of(what, 0, 0);
      from_first.from.pipeline = 0;
      s.receive(from_first, s.bytes(32));
    }
    CHECK(s.executes<op::update>().sums.own.bytes().size() == 64);
    s.finish();
    const auto r = s.report();
    CHECK(r.iteration == 1);
    CHECK(r.saved == 0);
    CHECK(s.device->is_idle());
  }
  stage_fixture s{setup, {.real = true}};
  s.run(1);
  REQUIRE(gpu::take_fence(directory.path(), lease_of_stage + 1));
  iterate(s);
  CHECK(s.device->is_idle());
  CHECK(s.report().why.code == reason::kind::stale);
}

TEST_CASE("a simulated stage has saved when a checkpoint is due, and no sooner") {
  auto setup = alone();
  setup.how.checkpoint_every = 2;
  stage_fixture s{setup};
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
  stage_fixture s{setup, {.real = true}};
  CHECK(s.take<stage_report>().empty());
  CHECK(s.executes<op::load>().path == checkpoint_path("/somewhere", 2));
  s.run(4);
  CHECK(s.device->submitted.size() == 1);  // it is loading
  s.finish();
  const auto ready = s.report();
  CHECK(ready.iteration == 2);
  CHECK(ready.saved == 2);
  CHECK(s.executes<op::forward>().input.bytes().size() == 3);  // of the third iteration
}

TEST_CASE("a simulated stage is ready after its start, which takes a slow node longer") {
  for (const double slowdown : {1.0, 3.0}) {
    stage_fixture s{one_of_three(1), {.start_s = 2, .slowdown = slowdown}};
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
    stage_fixture s{one_of_three(1), {.create = [thrown]() -> expected<stage_backend> {
                      if (thrown) throw std::runtime_error{"no such thing"};
                      return refuse(reason::kind::infeasible, "no such device");
                    }}};
    const auto r = s.report();
    CHECK(r.why.text == (thrown ? "setup failed: no such thing" : "no such device"));
    s.run(1);
    s.activation(0, 0);
    s.advance(1);
    CHECK(s.take<tensor>().empty());
    CHECK(s.training_ends.empty());
  }
}

TEST_CASE("a stage that fails says why, again when it is asked, and does nothing any more") {
  auto setup = alone();
  setup.backend = "cpu";
  stage_fixture s{setup, {.real = true}};
  s.run(2);
  s.report();
  s.fail(reason::kind::device_lost, "the GPU is gone");
  auto r = s.report();
  CHECK(r.why.text == "the GPU is gone");
  CHECK(r.iteration == 0);
  REQUIRE(s.training_ends.size() == 1);
  CHECK(is_lost_device(s.training_ends[0]));
  CHECK(s.training_ends[0].detail == "the GPU is gone");
  s.run(2);
  r = s.report();
  CHECK(r.why.text == "the GPU is gone");
  CHECK(s.device->submitted.size() == 1);
  stage_fixture other{setup, {.real = true}};
  other.run(2);
  other.fail(reason::kind::unavailable, "something else");
  CHECK(other.training_ends.empty());
}

TEST_CASE("a stage without memory has released its device when it says so") {
  auto setup = alone();
  setup.backend = "cuda";
  stage_fixture s{setup, {.real = true}};
  s.run(2);
  const std::weak_ptr device = std::exchange(s.device, nullptr);
  auto* d = device.lock().get();
  REQUIRE(d);
  d->finish(refuse(reason::kind::out_of_memory, "the GPU refused 8 bytes"));
  s.advance(1);
  CHECK(device.expired());
  const auto r = s.report();
  CHECK(r.why.code == reason::kind::out_of_memory);
  CHECK(r.why.text == "the GPU refused 8 bytes");
  CHECK(s.training_ends.empty());
}

TEST_CASE("reports are repeated with every run until they are acknowledged") {
  stage_fixture s{one_of_three(1)};
  s.run(1);
  s.complete(0);
  s.take<stage_report>();
  auto run = s.run_until(1);
  s.run(run);
  const auto all = s.take<stage_report>();
  REQUIRE(all.size() == 2);
  CHECK(all[0].iteration == 0);
  CHECK(all[1].iteration == 1);
  run.acknowledged = 1;
  s.run(run);
  CHECK(s.only<stage_report>().iteration == 1);
  run.acknowledged = 2;
  s.run(run);
  CHECK(s.take<stage_report>().empty());
  run.acknowledged = 0;  // an old message
  s.run(run);
  CHECK(s.take<stage_report>().empty());
}

TEST_CASE("a run of another trainer is not followed, an older one does not take iterations back") {
  stage_fixture s{one_of_three(1)};
  auto foreign = s.run_until(2);
  foreign.incarnation = 4;
  s.report();
  s.run(foreign);
  CHECK(s.take<stage_report>().empty());
  s.activation(0, 0);
  s.advance(0.5);
  CHECK(s.take<tensor>().empty());
  auto any = s.run_until(2);
  any.incarnation = 0;
  s.run(any);
  s.run(1);
  s.complete(0);
  s.complete(1);
  CHECK(s.report().iteration == 2);
}

TEST_CASE("a report says when the latest message of the trainer left, and when it arrived") {
  auto setup = one_of_three(1);
  setup.sent_s = 50;
  stage_fixture s{setup};
  CHECK(s.report().request_sent_s == 50);
  auto run = s.run_until(1);
  run.sent_s = 60;
  run.ahead_s = 100;
  const double said_s = s.now_s();
  s.run(run);
  auto r = s.report();
  CHECK(r.request_sent_s == 60);
  CHECK(r.received_s == Approx(said_s).margin(1e-6));
  CHECK(r.replied_s == Approx(said_s).margin(1e-6));
  run.sent_s = 55;  // an older message
  run.ahead_s = 7;
  s.run(run);
  CHECK(s.report().request_sent_s == 60);
  // Its times are on the trainer's clock, which is 100 s behind.
  s.complete(0);
  r = s.report();
  CHECK(r.end_s < s.now_s() - 100);
  CHECK(r.begin_s == Approx(said_s - 100).margin(0.1));
}

TEST_CASE("a new order counts from the next iteration, and steps that there are not are refused") {
  auto run_order = [](stage_fixture& s, std::uint64_t until) {
    auto r = s.run_until(until);
    r.order = s.setup.order;
    std::swap(r.order[0], r.order[1]);
    r.forward = s.setup.forward;
    r.backward = s.setup.backward;
    r.forward.pairs = 2;
    return r;
  };
  stage_fixture s{one_of_three(1)};
  s.run(run_order(s, 1));
  for (const auto m : {0u, 1u}) s.activation(0, m);
  s.advance(0.12);
  auto sent = s.only<tensor>();
  CHECK(sent.microbatch == 1);
  CHECK(sent.path.pairs == 2);
  // In the middle of an iteration it keeps its order.
  auto other = s.run_until(2);
  other.order = s.setup.order;
  s.run(other);
  s.complete(0);
  s.take<tensor>();
  for (const auto m : {0u, 1u}) s.activation(1, m);
  s.advance(0.12);
  sent = s.only<tensor>();
  CHECK(sent.microbatch == 1);
  auto wrong = s.run_until(3);
  wrong.order = {{stage_step::kind::forward, 2, 0}};
  s.take<stage_report>();
  s.run(wrong);
  CHECK(s.report().why.code == reason::kind::malformed);
}

TEST_CASE("a stage that is told to halt ends the iteration that it has begun, and no other") {
  stage_fixture s{one_of_three(1)};
  s.run(4);
  s.activation(0, 0);
  auto halt = s.run_until(4);
  halt.halt = true;
  s.take<stage_report>();
  s.run(halt);
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
  s.run(halt);
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
  const saving_stage saves{50};
  const auto& setup = saves.setup;
  stage_fixture s{setup, {.real = true}};
  s.run(1);
  iterate(s);
  s.take<stage_report>();
  auto halt = s.run_until(1);
  halt.halt = true;
  s.run(halt);
  CHECK(s.report().halts_at == 1u);
  CHECK(s.device->is_idle());
  halt.save = 1;
  s.run(halt);
  CHECK(s.device->current<op::save>());
  const auto count = s.device->submitted.size();
  s.run(halt);  // again
  s.finish();
  CHECK(s.report().saved == 1);
  s.run(halt);
  CHECK(s.report().saved == 1);
  CHECK(s.device->submitted.size() == count);
}

TEST_CASE(
    "a stage whose training reaches its target is over after the iteration that it has done") {
  const saving_stage saves{1};
  stage_fixture s{saves.setup, {.real = true}};
  s.run(1);
  auto end = s.run_until(1);
  end.save = 1;
  s.run(end);  // it has not done that yet
  iterate(s);
  s.finish();
  CHECK(s.report().saved == 1);
  CHECK(s.training_ends.empty());
  s.run(end);
  CHECK(s.report().halts_at == 1u);
  REQUIRE_FALSE(s.training_ends.empty());
  CHECK(s.training_ends[0].how == part_report::state::succeeded);
  CHECK(s.training_ends[0].who == saves.setup.name);
  CHECK(s.device->is_idle());
}
