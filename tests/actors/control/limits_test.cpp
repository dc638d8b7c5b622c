#include <set>

#include "actors/control/ledger/journal_time.hpp"
#include "actors/control/spoken_world.hpp"
#include "actors/control/trainings.hpp"
#include "actors/protocol/launch_environment.hpp"

// The limits that end jobs in time, and their clock; the ports at which the ranks of programs meet.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using namespace troupe::test;

namespace {

/// A controller whose first node is the test, and has these ports.
struct controller_with_ports : spoken_world {
  explicit controller_with_ports(std::vector<std::uint16_t> ports) {
    world.add_host(controller_address, [this](const runtime::host& h) {
      return start_controller(world.system(), h,
                              {cluster_, planners::make_policy("frenzy"), false, true, {}, {}})
          .all;
    });
    for (address g = 1; g <= 3; ++g) speak_for(g);
    speak_for(first_client_address + 1);
    report.incarnation = 7, report.ports = std::move(ports);
    send();
    send();
  }

  /// The node's report, as having followed the last orders.
  void send() {
    ++report.sequence;
    say(dc1, a0, controller_address, report);
    world.run_until(world.now_s() + 0.1);
    for (auto& o : take<node_orders>(dc1))
      if (o.sequence > orders.sequence) orders = std::move(o);
    report.epoch = orders.epoch, report.orders = orders.sequence, report.journal = orders.journal;
  }
  void submit(std::uint64_t request) {
    auto job = harness::small_job("j", 1'000'000);
    job.program.command = {"true"};
    say(first_client_address + 1, first_client_address + 1, controller_address,
        submit_job{request, job});
  }
  void pass(double s) {
    for (int i = 0; i < s * 2; ++i) world.run_until(world.now_s() + 0.5), send();
  }

  node_report report;
  node_orders orders;
};

std::string variable(const work_order& w, const std::string& name) {
  for (const auto& pair : w.environment)
    if (pair.starts_with(name + "=")) return pair.substr(name.size() + 1);
  return {};
}

}  // namespace

TEST_CASE("the journal's time follows the monotonic clock of a machine that was not restarted") {
  const clock_reading before{1000, 50, 9};
  CHECK(journal_time({1060, 110, 9}, before, 1020) == 1060);
  // The wall clock was set two hours ahead, or back, while no controller ran.
  CHECK(journal_time({8260, 110, 9}, before, 1020) == 1060);
  CHECK(journal_time({10, 110, 9}, before, 1020) == 1060);
  // The journal's time is never earlier than its last entry.
  CHECK(journal_time({1060, 110, 9}, before, 1061) == 1061);
}

TEST_CASE("after a restart of the machine the wall clock counts, within the journal's own times") {
  const clock_reading before{1000, 50, 9};
  CHECK(journal_time({5000, 3, 10}, before, 1020) == 5000);
  CHECK(journal_time({10, 3, 10}, before, 1020) == 1020);
  CHECK(journal_time({4e9, 3, 10}, before, 1020) == 1020 + max_absence_s);
  CHECK(journal_time({5000, 60, 0}, before, 1020) == 5000);  // an unknown start
  CHECK(journal_time({5000, 60, 9}, {}, 1020) == 5000);      // an older journal
  CHECK(journal_time({-5, 60, 9}, {}, 0) == -5);             // an empty one
}

TEST_CASE("a deadline comes when it is due, whatever the wall clock of the controller does") {
  for (const double step_s : {7200.0, -7200.0}) {
    INFO(step_s);
    auto o = training_options();
    virtual_cluster v{o};
    auto job = harness::small_job("late", 20);
    job.limits.deadline_s = 300;
    v.submit({{1, job}});
    v.world().run_until(1.5);
    REQUIRE(asked<suspend_reply>(v, suspend_job{0, 1, true}).done);  // it would end in time
    v.world().run_until(60.0);
    v.world().set_wall_clock(controller_address, step_s);
    v.world().run_until(250.0);
    CHECK(seen(v).state == job_state::waiting);
    v.world().run_until(320.0);
    CHECK(seen(v).state == job_state::failed);
    CHECK(seen(v).detail.find("its deadline has passed") != std::string::npos);
    CHECK(seen(v).submitted_s < 10);
    CHECK(seen(v).ended_s < 320);
  }
}

TEST_CASE("a job that has run for its time limit fails, all its attempts together") {
  auto o = training_options();
  virtual_cluster v{o};
  auto job = harness::small_job("long", 1'000'000'000);
  job.limits.time_limit_s = 100;
  v.submit({{1, job}});
  v.world().run_until(61.0);
  REQUIRE(seen(v).state == job_state::running);
  REQUIRE(asked<suspend_reply>(v, suspend_job{0, 1, true}).done);
  v.world().run_until(500.0);  // waiting does not count
  REQUIRE(asked<suspend_reply>(v, suspend_job{0, 1, false}).done);
  until(v, job_state::running);
  const double again_s = v.world().now_s();
  until(v, job_state::failed);
  CHECK(v.world().now_s() - again_s < 60);
  CHECK(v.world().now_s() - again_s > 30);
  CHECK(seen(v).progress.attempts == 2);
  CHECK(seen(v).detail.starts_with("its time limit has passed: time_limit_s is 100, it ran 10"));
  CHECK(seen(v).detail.ends_with(" s in 2 attempts"));
}

TEST_CASE("the cluster's time limit is that of jobs that have none of their own") {
  auto o = training_options();
  auto c = std::make_shared<cluster>(*o.cluster);
  c->settings.time_limit_s = 50;
  o.cluster = c;
  virtual_cluster v{o};
  auto job = harness::small_job("long", 1'000'000'000);
  v.submit({{1, job}});
  v.world().run_until(45.0);
  CHECK(seen(v).state == job_state::running);
  v.world().run_until(60.0);
  CHECK(seen(v).state == job_state::failed);
  CHECK(seen(v).detail.find("time_limit_s is 50") != std::string::npos);
}

TEST_CASE("programs meet at ports that their first node has found free, each at its own") {
  const std::vector<std::uint16_t> free{21001, 21002, 80, 21003, 21004};
  controller_with_ports c{free};
  for (std::uint64_t request = 1; request <= 4; ++request) c.submit(request);
  c.pass(6);
  std::set<std::uint16_t> used;
  REQUIRE(c.orders.work.size() >= 2);
  for (const auto& w : c.orders.work) {
    REQUIRE(w.port);
    CHECK(*w.port > 21000);
    CHECK(*w.port < 21005);
    CHECK(used.insert(*w.port).second);
    CHECK(variable(w, "MASTER_PORT") == std::to_string(*w.port));
    CHECK(variable(w, "PET_MASTER_PORT") == std::to_string(*w.port));
  }
}

TEST_CASE("a program whose port was taken meanwhile is started again with another one") {
  controller_with_ports c{{21001, 21002}};
  c.submit(1);
  c.pass(6);
  REQUIRE(c.orders.work.size() == 1);
  std::uint64_t last = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {  // the second one in a row is not at once
    const auto w = c.orders.work.front();
    CHECK(w.lease != last);
    last = w.lease;
    part_report taken;
    taken.lease = w.lease, taken.now = part_report::state::not_started;
    taken.detail = "its port is in use";
    c.report.parts = {taken};
    c.report.ports = std::vector<std::uint16_t>{21003, 21004};
    c.send();
    c.report.parts.clear();
    c.pass(attempt == 0 ? 1 : 3);
    REQUIRE(c.orders.work.size() == 1);
    CHECK(*c.orders.work.front().port > 21002);
  }
}

TEST_CASE("without a node's ports 40,000 leases stay below the ports of outgoing connections") {
  cluster c = *harness::small_cluster();
  lease_granted lease;
  lease.parts = {{0, 1, {0}}};
  const auto spec = harness::small_job("j");
  std::string before;
  for (lease.lease = 1'700'000'000'000; lease.lease < 1'700'000'040'000; ++lease.lease) {
    const auto env = launch_environment(c, spec, lease, 0, true);
    const auto at =
        std::ranges::find_if(env, [](const auto& v) { return v.starts_with("MASTER_PORT="); });
    REQUIRE(at != env.end());
    const auto port = std::stoi(at->substr(12));
    if (port < 20000 || port >= 30000 || *at == before) FAIL(*at);
    before = *at;
  }
}
