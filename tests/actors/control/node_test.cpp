#include <map>

#include "actors/control/spoken_world.hpp"

// A node; the test plays its controller, its gateway and its programs.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using state = part_report::state;

namespace {

/// Programs that run until the test ends them.
class said_programs final : public process_runner {
 public:
  expected<void> start(const work_order& w) override {
    started.push_back(w.lease);
    if (refuses) return refuse(reason::kind::invalid, "no room");
    if (!lacks.empty()) return refuse(reason::kind::unavailable, lacks);
    running[w.lease].lease = w.lease;
    return {};
  }
  void renew(double until_s) override { renewed_s = until_s; }
  void stop(lease_id lease, bool at_once) override { stopped.emplace_back(lease, at_once); }
  void watch(std::function<void()> on_event) override { event = std::move(on_event); }
  std::vector<part_report> poll() override {
    std::vector<part_report> all;
    for (const auto& [lease, r] : running) all.push_back(r);
    std::erase_if(running, [](const auto& r) { return r.second.now != state::running; });
    return all;
  }
  std::string unable() const override { return lacks; }
  void append_log(lease_id, const std::string&) override {}
  expected<log_piece> read_log(lease_id lease, std::uint64_t offset) const override {
    if (lease == 99) return refuse(reason::kind::unknown, "no such log");
    if (offset >= 10) return log_piece{offset, {}};
    return log_piece{offset + 1, payload{std::vector<std::byte>(5)}};
  }

  bool refuses = false;
  std::string lacks;
  double renewed_s = 0;
  std::vector<lease_id> started;
  std::vector<std::pair<lease_id, bool>> stopped;
  std::map<lease_id, part_report> running;
  std::function<void()> event;
};

struct scripted_node : spoken_world {
  explicit scripted_node(bool has_programs = true, double slowdown = 1) {
    world.add_host(a0, [this, has_programs, slowdown](const runtime::host& h) {
      node_options o;
      o.cluster = cluster_;
      if (has_programs) o.process_runner = programs;
      if (slowdown != 1) o.slowdown = [slowdown] { return slowdown; };
      return start_node(world.system(), h, std::move(o));
    });
    speak_for(dc1);
    world.run_until(0.5);
    received = take<node_report>(dc1).back();
    orders.epoch = 5, orders.sequence = 0, orders.journal = 6;
    orders.incarnation = received.incarnation;
  }
  /// The latest report, if there is a new one.
  const node_report& report() {
    for (const auto& r : take<node_report>(dc1)) received = r;
    return received;
  }
  /// Sends the node these orders, and returns its answer.
  const node_report& order(std::vector<work_order> work) {
    orders.work = std::move(work);
    ++orders.sequence;
    orders.acknowledged = report().sequence;
    say(dc1, controller_address, a0, orders);
    return report();
  }
  /// The controller has acknowledged all reports.
  void acknowledge() {
    say(dc1, dc1, a0,
        lease_renewal{0, orders.incarnation, orders.journal, orders.epoch, orders.sequence,
                      report().sequence});
  }
  work_order work(lease_id lease, bool program = true) const {
    work_order w;
    w.lease = lease;
    w.incarnation = orders.incarnation;
    if (program) w.command = {"a program"};
    w.iterations = 100;
    w.iteration_s = 0.1;
    w.start_s = 0.5;
    return w;
  }
  void advance(double seconds) { world.run_until(world.now_s() + seconds); }
  /// Advances while the controller renews the lease.
  void advance_in_touch(double seconds) {
    for (double until = world.now_s() + seconds; world.now_s() < until;) {
      advance(0.5);
      for (const auto& b : take<node_heartbeat>(dc1)) beat = b.sequence;
      say(dc1, dc1, a0,
          lease_renewal{0, orders.incarnation, orders.journal, orders.epoch, orders.sequence,
                        std::max(beat, report().sequence)});
    }
  }

  std::shared_ptr<said_programs> programs = std::make_shared<said_programs>();
  node_orders orders;
  node_report received;
  std::uint64_t beat = 0;
};

}  // namespace

TEST_CASE(
    "a program is started once, and its end is reported until the controller acknowledges it") {
  scripted_node n;
  auto r = n.order({n.work(3)});
  REQUIRE(r.parts.size() == 1);
  CHECK(r.parts[0].lease == 3);
  CHECK(r.parts[0].now == state::running);
  CHECK(r.orders == 1);
  CHECK(r.epoch == 5);
  CHECK(r.journal == 6);
  n.order({n.work(3)});
  CHECK(n.programs->started == std::vector<lease_id>{3});
  n.programs->running[3].now = state::failed;
  n.programs->running[3].exit_code = 4;
  n.programs->event();
  n.advance(0.01);
  r = n.report();
  REQUIRE(r.parts.size() == 1);
  CHECK(r.parts[0].now == state::failed);
  CHECK(r.parts[0].exit_code == 4);
  CHECK(n.order({n.work(3)}).parts.size() == 1);  // still ordered
  CHECK(n.programs->started.size() == 1);
  n.orders.answer = true;
  CHECK(n.order({}).parts.empty());  // the controller knows of its end
  CHECK(n.programs->stopped.empty());
}

TEST_CASE("an unacknowledged end is kept, even when the orders no longer list its lease") {
  scripted_node n;
  n.order({n.work(3)});
  n.programs->running[3].now = state::succeeded;
  n.programs->event();
  n.advance(0.01);
  const auto before = n.received.sequence;
  n.orders.work.clear();
  ++n.orders.sequence;
  n.orders.acknowledged = before;
  n.say(dc1, controller_address, a0, n.orders);
  CHECK(n.report().parts.size() == 1);
  n.acknowledge();
  n.advance(1.5);
  CHECK(n.report().parts.empty());
}

TEST_CASE("work that is no longer ordered is asked to stop; work without a lease is killed") {
  scripted_node n;
  n.order({n.work(3), n.work(4)});
  n.order({n.work(4)});
  CHECK(n.programs->stopped == std::vector{std::pair{lease_id{3}, false}});
  const auto& s = n.cluster_->settings;
  n.advance(s.lease_s + 1);
  CHECK(n.programs->stopped.back() == std::pair{lease_id{4}, true});
  n.programs->running[4].now = state::stopped;
  n.advance(1);
  bool found = false;
  for (const auto& p : n.report().parts)
    if (p.lease == 4) {
      found = true;
      CHECK(p.now == state::stopped);
      CHECK(p.detail == lease_expired);
    }
  CHECK(found);
}

TEST_CASE("a lease counts from the sending of the statement that the controller acknowledged") {
  scripted_node n;
  const auto& s = n.cluster_->settings;
  n.order({n.work(3)});
  n.acknowledge();
  const double sent_s = n.world.now_s();
  CHECK(n.programs->renewed_s == Approx(sent_s + s.lease_s).margin(0.05));
  n.advance(s.heartbeat_s * 2);
  CHECK(n.programs->renewed_s == Approx(sent_s + s.lease_s).margin(0.05));
  n.advance_in_touch(3 * s.lease_s);
  CHECK(n.programs->stopped.empty());
  CHECK(n.programs->renewed_s > n.world.now_s());
}

TEST_CASE(
    "older orders, orders for another incarnation and work of another incarnation are ignored") {
  scripted_node n;
  n.orders.incarnation += 1;
  CHECK(n.order({n.work(3)}).orders == 0);
  n.orders.incarnation -= 1;
  n.orders.sequence = 7;
  auto foreign = n.work(4);
  foreign.incarnation += 1;
  auto ending = n.work(5);
  ending.stop_within_s = 1;
  CHECK(n.order({foreign, ending}).orders == 8);
  CHECK(n.programs->started.empty());
  for (const auto& [epoch, sequence] : {std::pair{5u, 7u}, {4u, 100u}, {5u, 8u}}) {
    auto older = n.orders;
    older.epoch = epoch, older.sequence = sequence;
    older.work = {n.work(6)};
    n.say(dc1, controller_address, a0, older);
    CHECK(n.programs->started.empty());
  }
  n.orders.epoch = 6, n.orders.sequence = 0;
  n.order({n.work(7)});
  CHECK(n.programs->started == std::vector<lease_id>{7});
}

TEST_CASE("after a lease has expired, only new orders start work") {
  scripted_node n;
  n.order({});
  n.acknowledge();
  n.advance(n.cluster_->settings.lease_s + 1);
  n.orders.acknowledged = 0;
  n.orders.work = {n.work(3)};
  ++n.orders.sequence;
  n.say(dc1, controller_address, a0, n.orders);
  CHECK(n.programs->started.empty());
  n.advance(1.1);
  CHECK(n.report().orders == 0);  // asks for them again
  n.order({n.work(3)});
  CHECK(n.programs->started == std::vector<lease_id>{3});
}

TEST_CASE("work of another journal has ended before work of the new journal starts") {
  scripted_node n;
  n.order({n.work(3)});
  n.orders.journal = 8;
  n.orders.epoch = 1;
  n.orders.sequence = 0;
  CHECK(n.order({n.work(1)}).journal == 6);
  CHECK(n.programs->stopped == std::vector{std::pair{lease_id{3}, true}});
  CHECK(n.programs->started == std::vector<lease_id>{3});
  n.programs->running[3].now = state::stopped;
  n.programs->event();
  n.advance(0.01);
  CHECK(n.report().parts[0].detail == "the controller has another journal");
  const auto r = n.order({n.work(1)});
  CHECK(r.journal == 8);
  CHECK(r.epoch == 1);
  REQUIRE(r.parts.size() == 1);
  CHECK(r.parts[0].lease == 1);
  CHECK(n.programs->started == std::vector<lease_id>{3, 1});
}

TEST_CASE("a program that cannot be started has failed, with the reason") {
  scripted_node n;
  n.programs->refuses = true;
  const auto r = n.order({n.work(3)});
  REQUIRE(r.parts.size() == 1);
  CHECK(r.parts[0].now == state::failed);
  CHECK(r.parts[0].exit_code == 127);
  CHECK(r.parts[0].detail == "no room");
}

TEST_CASE("a node that can start no program says so with what it has not started, until it can") {
  scripted_node n;
  n.programs->lacks = "the disk is full";
  const auto r = n.order({n.work(3)});
  REQUIRE(r.parts.size() == 1);
  CHECK(r.parts[0].now == state::not_started);
  CHECK(r.parts[0].detail == "the disk is full");
  CHECK(r.lost == "the disk is full");
  n.programs->lacks.clear();
  n.advance(1);
  CHECK(n.report().lost.empty());
}

TEST_CASE("simulated work takes its start time plus its iterations, times its node's slowdown") {
  for (const double slowdown : {1.0, 2.0}) {
    scripted_node n{false, slowdown};
    auto w = n.work(3, false);
    w.iterations = 10;
    n.order({w});
    const double begun_s = n.world.now_s() - 0.01;
    n.advance(1 * slowdown);
    n.orders.answer = true;
    const auto part = n.order({w}).parts[0];
    CHECK(part.now == state::running);
    CHECK(part.iterations == 5);
    n.advance(begun_s + 1.5 * slowdown + 0.02 - n.world.now_s());
    const auto end = n.report().parts[0];
    CHECK(end.now == state::succeeded);
    CHECK(end.iterations == 10);
  }
}

TEST_CASE("stopped simulated work has done the iterations that its time allowed") {
  scripted_node n{false};
  const auto w = n.work(3, false);
  n.order({w, n.work(4, false)});
  n.advance(0.2);
  auto r = n.order({w});
  for (const auto& p : r.parts)
    if (p.lease == 4) {
      CHECK(p.now == state::stopped);
      CHECK(p.iterations == 0);  // still starting
    }
  n.advance(0.55);
  r = n.order({});
  for (const auto& p : r.parts)
    if (p.lease == 3) {
      CHECK(p.now == state::stopped);
      CHECK(p.iterations == 2);
    }
  n.advance(20);
  for (const auto& p : n.report().parts) CHECK(p.now == state::stopped);
}

TEST_CASE("simulated work that runs out of memory ends after its start, without iterations") {
  scripted_node n{false};
  auto w = n.work(3, false);
  w.out_of_memory = true;
  n.order({w});
  n.advance(0.3);
  CHECK(n.report().parts[0].now == state::running);
  n.advance(0.3);
  const auto end = n.report().parts[0];
  CHECK(end.now == state::out_of_memory);
  CHECK(end.iterations == 0);
  CHECK(end.detail.starts_with("out of memory"));
}

TEST_CASE("a log is read piece by piece, and ends once its program has ended") {
  scripted_node n;
  n.order({n.work(3)});
  const auto client = first_client_address + 1;
  const auto read = [&](lease_id lease, std::uint64_t offset) {
    n.say(dc1, client, a0, read_log{17, 1, lease, 0, offset});
    const auto all = n.take<log_chunk>(dc1);
    REQUIRE(all.size() == 1);
    CHECK(all[0].request == 17);
    return all[0];
  };
  CHECK(read(3, 2).offset == 3);
  CHECK_FALSE(read(3, 2).ended);
  CHECK_FALSE(read(3, 20).ended);  // it may write more
  CHECK_FALSE(read(5, 2).ended);   // of a lease that is over: there is more
  CHECK(read(5, 20).ended);
  CHECK(read(99, 0).ended);
  CHECK(read(99, 0).why.text == "no such log");
  scripted_node simulated{false};
  simulated.say(dc1, client, a0, read_log{17, 1, 3, 0, 0});
  CHECK(simulated.take<log_chunk>(dc1).at(0).why.text == "simulated work has no log");
}
