#include "actors/control/spoken_world.hpp"

// A node that runs stages of a training, whose trainer, neighbours and controller are the test.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using state = part_report::state;

namespace {

constexpr lease_id lease = 3;

struct trained_node : spoken_world {
  trained_node() {
    // The only other node of its datacenter has a slow link, one of another a slower one.
    cluster_->nodes[1].inter.gbps = 10;
    cluster_->nodes[2].inter.gbps = 0.1;
    world.add_host(a0, [this](const runtime::host& h) {
      node_options o;
      o.cluster = cluster_;
      auto actors = start_node(world.system(), h, std::move(o));
      actor = caf::actor_cast<node_actor>(actors.front());
      return actors;
    });
    speak_for(dc1);
    world.run_until(0.5);
    const auto received = take<node_report>(dc1).back();
    orders.epoch = 5, orders.journal = 6;
    orders.incarnation = received.incarnation;
    orders.acknowledged = received.sequence;
  }
  work_order work(lease_id l = lease) const {
    work_order w;
    w.lease = l;
    w.incarnation = orders.incarnation;
    w.devices = {0, 1};
    w.iterations = 2;
    w.train.emplace();
    w.train->part = 1;
    w.train->trainer = 1;
    return w;
  }
  void finish_both_stages() {
    order({work()});
    for (const auto p : {0u, 1u}) {
      reports_after(setup(p, static_cast<std::uint16_t>(p)));
      say(dc1, a1, a0, run(p, 2));
    }
    advance(2);
    REQUIRE(part().now == state::succeeded);
  }
  void order(std::vector<work_order> all) {
    orders.work = std::move(all);
    ++orders.sequence;
    orders.answer = true;
    for (const auto& r : take<node_report>(dc1)) orders.acknowledged = r.sequence;
    say(dc1, controller_address, a0, orders);
  }
  /// A stage of one, with a device of its own and no other stage to wait for.
  stage_setup setup(std::uint32_t pipeline, std::uint16_t device, lease_id l = lease) const {
    stage_setup s;
    s.name = {l, pipeline, 0};
    s.incarnation = 9;
    s.devices = {device};
    s.backend = "sim";
    s.model.tied_head = false;
    s.pipelines = 2;
    s.order = {{stage_step::kind::forward, 0, 0}, {stage_step::kind::backward, 0, 0}};
    s.neighbours = {a0};
    s.peers = {a0, a0};
    s.iterations = 2;
    s.costs.forward_s = s.costs.backward_s = 0.1;
    return s;
  }
  stage_run run(std::uint32_t pipeline, std::uint64_t until) const {
    stage_run r;
    r.name = {lease, pipeline, 0};
    r.until = until;
    r.incarnation = 9;
    return r;
  }
  std::vector<stage_report> reports_after(const message& m, address from = a1) {
    say(dc1, from, a0, m);
    return take<stage_report>(dc1);
  }
  void advance(double seconds) {
    for (const double until = world.now_s() + seconds; world.now_s() < until;) {
      world.run_until(world.now_s() + 0.5);
      for (const auto& r : take<node_report>(dc1)) latest = r;
      for (const auto& b : take<node_heartbeat>(dc1)) beat = b.sequence;
      say(dc1, dc1, a0,
          lease_renewal{0, orders.incarnation, orders.journal, orders.epoch, orders.sequence,
                        std::max(beat, latest.sequence)});
    }
  }
  part_report part() {
    for (const auto& r : take<node_report>(dc1)) latest = r;
    REQUIRE(latest.parts.size() == 1);
    return latest.parts[0];
  }

  /// Sends the node a stage's message that its GPU is gone.
  void lose_device(const std::string& detail) {
    caf::anon_send(actor, training_over{lease, {lease, 0, 0}, false, state::stopped, detail});
    advance(2);
  }

  node_actor actor;
  node_orders orders;
  node_report latest;
  std::uint64_t beat = 0;
};

}  // namespace

TEST_CASE("a node sets up the stages that its trainer names, and repeats what they said") {
  trained_node n;
  n.order({n.work()});
  auto all = n.reports_after(n.setup(0, 0));
  REQUIRE(all.size() == 1);
  CHECK(all[0].name == stage_name{lease, 0, 0});
  CHECK(all[0].incarnation == 9);
  CHECK(all[0].why.text.empty());
  CHECK_FALSE(all[0].starting);
  CHECK(n.reports_after(n.setup(0, 0)).size() == 1);  // again
  auto older = n.setup(0, 0);
  older.incarnation = 8;
  CHECK(n.reports_after(older).empty());
  auto newer = n.setup(0, 0);
  newer.incarnation = 10;
  all = n.reports_after(newer);
  REQUIRE(all.size() == 1);
  CHECK(all[0].incarnation == 10);
  CHECK(n.reports_after(n.setup(0, 0)).empty());
}

TEST_CASE("a setup that the lease does not allow is answered with the reason") {
  trained_node n;
  n.order({n.work()});
  const auto all = n.reports_after(n.setup(0, 5));
  REQUIRE(all.size() == 1);
  CHECK(all[0].why.text == "GPU 5 is not one of this lease's");
  CHECK(all[0].incarnation == 9);
  CHECK(n.reports_after(n.setup(0, 0)).at(0).why.text.empty());
}

TEST_CASE("what is said of a lease that the node does not have, or by the wrong host, is dropped") {
  trained_node n;
  n.order({n.work()});
  CHECK(n.reports_after(n.setup(0, 0, lease + 1)).empty());
  CHECK(n.reports_after(n.setup(0, 0), b0).empty());
  CHECK(n.reports_after(n.run(0, 1)).empty());  // it has not been set up
  auto other = n.run(0, 1);
  other.name.lease = lease + 1;
  CHECK(n.reports_after(other).empty());
  stage_report r;
  r.name = {lease, 0, 0};
  CHECK(n.reports_after(r).empty());  // the trainer is not here
  r.name.lease = lease + 1;
  CHECK(n.reports_after(r).empty());
  tensor t;
  t.from = {lease, 1, 0};
  tensor_request q;
  q.from = {lease, 1, 0};
  for (const auto l : {lease, lease + 1}) {
    t.from.lease = q.from.lease = l;
    CHECK(n.reports_after(t).empty());
    CHECK(n.reports_after(q).empty());
    n.say(dc1, controller_address, a0, training_report_ack{l, 1});
  }
  auto stops = n.work(lease + 1);
  stops.stop_within_s = 1;  // of a lease that has not begun
  n.order({n.work(), stops});
  CHECK(n.reports_after(n.setup(0, 0)).size() == 1);
}

TEST_CASE("a part has succeeded when the stages of all its devices have done their iterations") {
  trained_node n;
  n.order({n.work()});
  n.reports_after(n.setup(0, 0));
  n.reports_after(n.setup(1, 1));
  n.say(dc1, a1, a0, n.run(0, 2));
  n.say(dc1, a1, a0, n.run(1, 1));
  n.advance(2);
  CHECK(n.part().now == state::running);  // the second has an iteration left
  n.say(dc1, a1, a0, n.run(1, 2));
  n.advance(2);
  CHECK(n.part().now == state::succeeded);
  CHECK(n.part().iterations == 2);
}

TEST_CASE(
    "a GPU that fails after its part has succeeded is reported, and the part stays succeeded") {
  trained_node n;
  n.finish_both_stages();
  n.lose_device("GPU 0 fell off the bus");
  CHECK(n.part().now == state::succeeded);
  CHECK(n.latest.lost == "GPU 0 fell off the bus");
}

TEST_CASE("stages of a part that is over stay for a minute, and take no new setup") {
  trained_node n;
  n.finish_both_stages();
  n.order({});
  n.advance(1.5);
  n.take<stage_report>(dc1);
  auto newer = n.setup(0, 0);
  newer.incarnation = 10;
  CHECK(n.reports_after(newer).empty());
  CHECK_FALSE(n.reports_after(n.run(0, 2)).empty());  // it repeats its last reports
  n.advance(55);
  n.take<stage_report>(dc1);
  CHECK_FALSE(n.reports_after(n.run(0, 2)).empty());
  n.advance(8);
  n.take<stage_report>(dc1);
  CHECK(n.reports_after(n.run(0, 2)).empty());
}

TEST_CASE("work that is ordered no more takes its stages with it") {
  trained_node n;
  n.order({n.work()});
  n.reports_after(n.setup(0, 0));
  n.order({});
  CHECK(n.reports_after(n.run(0, 1)).empty());
  CHECK(n.reports_after(n.setup(0, 0)).empty());
}

TEST_CASE("a stage expects a tensor to take as long as over the slowest link of its datacenter") {
  trained_node n;
  n.order({n.work()});
  auto second = n.setup(0, 0);
  second.name.stage = 1;
  second.stages = 2;
  second.pipelines = 1;
  second.neighbours = {a1, a0};
  second.peers = {a0};
  second.costs.activation_bytes = 1'250'000'000;  // 1 s at 10 Gbit/s, behind seven others
  n.reports_after(second);
  auto run = n.run(0, 1);
  run.name.stage = 1;
  n.say(dc1, a1, a0, run);
  n.advance(12);
  CHECK(n.take<tensor_request>(dc1).empty());
  n.advance(1);
  CHECK(n.take<tensor_request>(dc1).size() == 1);
}
