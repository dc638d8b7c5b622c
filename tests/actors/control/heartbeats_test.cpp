#include "actors/control/spoken_world.hpp"
#include "actors/worlds/virtual_cluster.hpp"
#include "harness/logged_errors.hpp"

// Heartbeats and lease renewals while nothing changes: a node, a gateway and the controller, each
// alone; the test plays all other hosts.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

/// A controller whose gateways and nodes are the test.
struct controller_alone : spoken_world {
  controller_alone() {
    world.add_host(controller_address, [this](const runtime::host& h) {
      return start_controller(world.system(), h,
                              {cluster_, planners::make_policy("frenzy"), false, true, {}, {}})
          .all;
    });
    for (address g = 1; g <= 3; ++g) speak_for(g);
    speak_for(first_client_address + 1);
  }

  node_orders only_orders() {
    const auto all = take<node_orders>(dc1);
    REQUIRE(all.size() == 1);
    return all.front();
  }
  lease_renewal only_renewal() {
    const auto all = take<lease_renewals>(dc1);
    REQUIRE(all.size() == 1);
    REQUIRE(all.front().renewals.size() == 1);
    return all.front().renewals.front();
  }
  void report(const node_report& r) { say(dc1, a0, controller_address, r); }
  void heartbeat(std::uint64_t sequence, std::uint64_t of_report) {
    say(dc1, dc1, controller_address, gateway_report{1, ++reports, {{0, 7, sequence, of_report}}});
  }
  /// Node 0 has reported and followed its orders: the controller has no message for it.
  node_report settled() {
    node_report r;
    r.incarnation = 7, r.sequence = 1;
    report(r);
    const auto orders = only_orders();
    r.sequence = 2, r.epoch = orders.epoch, r.orders = orders.sequence, r.journal = orders.journal;
    report(r);
    CHECK(only_renewal() == lease_renewal{0, 7, r.journal, r.epoch, r.orders, 2});
    return r;
  }
  void submit() {
    say(first_client_address + 1, first_client_address + 1, controller_address,
        submit_job{5, harness::small_job("j", 1'000'000)});
    world.run_until(world.now_s() + 4);  // it waits for the other nodes to report
  }

  std::uint64_t reports = 0;
};

class end_flag final : public work_observer {
 public:
  explicit end_flag(bool& ended) : ended_{ended} {}
  void on_begin(const work_order&) override { ended_ = false; }
  void on_end(const work_order&, const part_report&) override { ended_ = true; }

 private:
  bool& ended_;
};

}  // namespace

TEST_CASE("a heartbeat that names a known report renews the lease without new orders") {
  controller_alone c;
  const auto r = c.settled();
  for (std::uint64_t n = 3; n < 6; ++n) {
    c.heartbeat(n, 2);
    CHECK(c.only_renewal() == lease_renewal{0, 7, r.journal, r.epoch, r.orders, n});
  }
  c.heartbeat(5, 2);  // again
  CHECK(c.waiting(dc1) == 0);
}

TEST_CASE("a heartbeat for a report that the controller does not have requests the report") {
  controller_alone c;
  const auto r = c.settled();
  c.heartbeat(4, 3);
  CHECK(c.only_renewal().acknowledged == 0);
  c.say(dc1, dc1, controller_address, gateway_report{1, 50, {{0, 8, 1, 1}}});  // a newer start
  const auto other = c.only_renewal();
  CHECK(other.incarnation == 8);
  CHECK(other.acknowledged == 0);
  // It was not received: report 3 still counts.
  auto late = r;
  late.sequence = 3;
  c.report(late);
  CHECK(c.only_renewal().acknowledged == 3);
}

TEST_CASE("orders that a node has not followed are sent again with every heartbeat") {
  controller_alone c;
  c.settled();
  c.submit();
  const auto first = c.take<node_orders>(dc1);
  REQUIRE_FALSE(first.empty());
  REQUIRE(first.back().work.size() == 1);
  for (std::uint64_t n = 3; n < 6; ++n) {
    c.heartbeat(n, 2);
    const auto again = c.only_orders();
    CHECK(again.work == first.back().work);
    CHECK(again.acknowledged == n);
  }
  CHECK(c.take<lease_renewals>(dc1).empty());
}

TEST_CASE("a node that was silent too long counts as present only after a full report") {
  controller_alone c;
  c.settled();
  c.world.run_until(c.world.now_s() + 20);
  c.heartbeat(3, 2);
  CHECK(c.only_renewal().acknowledged == 0);
}

TEST_CASE("a gateway's heartbeats count only for nodes of its own datacenter") {
  controller_alone c;
  c.settled();
  for (const node_index n : {2U, 4U, 5U, 1000U}) {
    c.say(dc1, dc1, controller_address, gateway_report{1, ++c.reports, {{n, 7, 3, 2}}});
    c.say(dc2, dc2, controller_address, gateway_report{1, ++c.reports, {{0, 7, 3, 2}}});
  }
  c.world.run_until(c.world.now_s() + 0.1);
  CHECK(c.waiting(dc1) == 0);
  CHECK(c.waiting(dc2) == 0);
  // As node 2's own gateway does.
  c.say(dc2, dc2, controller_address, gateway_report{1, ++c.reports, {{2, 7, 3, 2}}});
  c.world.run_until(c.world.now_s() + 0.1);
  CHECK(c.take<lease_renewals>(dc2).size() == 1);
}

TEST_CASE(
    "a node with a new state directory is ignored while its predecessor's work may still run") {
  controller_alone c;
  const auto r = c.settled();
  c.submit();
  REQUIRE(c.take<node_orders>(dc1).back().work.size() == 1);
  c.heartbeat(3, 2);
  c.take<node_orders>(dc1);
  node_report fresh;
  fresh.incarnation = 8, fresh.sequence = 1, fresh.new_state = true;
  const double last_seen_s = c.world.now_s();
  while (c.take<node_orders>(dc1).empty()) {
    REQUIRE(c.world.now_s() < last_seen_s + 30);
    c.report(fresh);
    ++fresh.sequence;
    c.world.run_until(c.world.now_s() + 1);
  }
  const auto& s = c.cluster_->settings;
  CHECK(c.world.now_s() - last_seen_s >= s.lease_s);
  // A node whose state directory knows its predecessor is accepted at once.
  fresh.incarnation = 9, fresh.sequence = 1, fresh.new_state = false;
  c.report(fresh);
  CHECK_FALSE(c.take<node_orders>(dc1).empty());
}

TEST_CASE("a gateway forwards heartbeats as one frame, and renewals to their nodes") {
  spoken_world w;
  w.world.add_host(dc1, [&](const runtime::host& h) {
    return start_gateway(w.world.system(), h, w.cluster_, true);
  });
  for (const address a : {controller_address, dc2, a0, a1}) w.speak_for(a);
  w.world.run_until(0.5);
  CHECK(w.take<gateway_report>(controller_address).size() == 1);
  w.say(a0, a0, dc1, node_heartbeat{0, 7, 3, 2});
  w.say(a1, a1, dc1, node_heartbeat{1, 9, 5, 4});
  w.say(a0, a0, dc1, node_heartbeat{0, 7, 4, 2});
  w.say(a0, a0, dc1, node_heartbeat{1, 1000, 1, 1});  // a forged node
  w.say(a0, a0, dc1, node_heartbeat{99, 7, 3, 2});
  w.world.run_until(0.9);
  const auto gathered = w.take<gateway_report>(controller_address);
  REQUIRE(gathered.size() == 1);
  CHECK(gathered[0].heartbeats == std::vector<node_heartbeat>{{0, 7, 4, 2}, {1, 9, 5, 4}});
  const lease_renewal one{0, 7, 1, 2, 3, 4}, other{1, 9, 1, 2, 3, 4}, foreign{2, 9, 1, 2, 3, 4},
      unknown{99, 9, 1, 2, 3, 4};
  w.say(controller_address, controller_address, dc1,
        lease_renewals{{one, other, foreign, unknown}});
  CHECK(w.take<lease_renewal>(a0) == std::vector{one});
  CHECK(w.take<lease_renewal>(a1) == std::vector{other});
  CHECK(w.waiting(dc2) == 0);
}

TEST_CASE(
    "a node repeats its report until it is acknowledged, then sends heartbeats until it changes") {
  spoken_world w;
  w.world.add_host(a0, [&](const runtime::host& h) {
    node_options o;
    o.cluster = w.cluster_;
    return start_node(w.world.system(), h, std::move(o));
  });
  w.speak_for(dc1);
  w.world.run_until(2.5);
  auto reports = w.take<node_report>(dc1);
  REQUIRE(reports.size() == 3);
  node_orders orders;
  orders.epoch = 5, orders.sequence = 1, orders.journal = 6;
  orders.incarnation = reports.back().incarnation, orders.acknowledged = reports.back().sequence;
  w.say(dc1, controller_address, a0, orders);
  w.world.run_until(w.world.now_s() + 1);
  reports = w.take<node_report>(dc1);  // the node has followed orders: that is new
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].orders == 1);
  lease_renewal renewal{0, orders.incarnation, 6, 5, 1, reports[0].sequence};
  for (int i = 0; i < 20; ++i) {
    w.say(dc1, dc1, a0, renewal);
    w.world.run_until(w.world.now_s() + 0.99);
    const auto beats = w.take<node_heartbeat>(dc1);
    REQUIRE(beats.size() == 1);
    CHECK(beats[0].report == reports[0].sequence);
    renewal.acknowledged = beats[0].sequence;
  }
  CHECK(w.take<node_report>(dc1).empty());
  // Its own gateway gets a report that it lacks at once; another gateway's renewal is ignored.
  renewal.acknowledged = 0;
  w.say(dc1, dc2, a0, renewal);
  CHECK(w.take<node_report>(dc1).empty());
  w.say(dc1, dc1, a0, renewal);
  CHECK(w.take<node_report>(dc1).size() == 1);
}

TEST_CASE("lease renewals for orders that a node has not followed do not keep its work alive") {
  spoken_world w;
  bool ended = false;
  w.world.add_host(a0, [&](const runtime::host& h) {
    node_options o;
    o.cluster = w.cluster_;
    o.observer = std::make_shared<end_flag>(ended);
    return start_node(w.world.system(), h, std::move(o));
  });
  w.speak_for(dc1);
  w.world.run_until(0.5);
  const auto report = w.take<node_report>(dc1).back();
  node_orders orders;
  orders.epoch = 5, orders.sequence = 1, orders.journal = 6;
  orders.incarnation = report.incarnation, orders.acknowledged = report.sequence;
  orders.work.resize(1);
  orders.work[0].lease = 3, orders.work[0].incarnation = report.incarnation;
  orders.work[0].iterations = 1'000'000, orders.work[0].iteration_s = 1;
  w.say(dc1, controller_address, a0, orders);
  const auto renew_for = [&](double seconds, std::uint64_t sequence) {
    for (const double until = w.world.now_s() + seconds; w.world.now_s() < until;) {
      w.world.run_until(w.world.now_s() + 0.5);
      for (const auto& r : w.take<node_report>(dc1))
        w.say(dc1, dc1, a0, lease_renewal{0, r.incarnation, 6, 5, sequence, r.sequence});
    }
  };
  renew_for(20, 1);
  CHECK_FALSE(ended);
  renew_for(20, 2);
  CHECK(ended);
}

TEST_CASE("a node's report of the next lease, which was never granted, ends the controller") {
  harness::logged_errors errors;
  controller_alone c;
  auto r = c.settled();
  c.submit();
  const auto orders = c.take<node_orders>(dc1);
  REQUIRE_FALSE(orders.empty());
  REQUIRE(orders.back().work.size() == 1);
  r.sequence = 3, r.orders = orders.back().sequence;
  r.parts.resize(1);
  r.parts[0].lease = orders.back().work[0].lease;
  c.report(r);
  CHECK(c.world.count().failures == 0);
  r.sequence = 4;
  ++r.parts[0].lease;
  c.report(r);
  CHECK(c.world.count().failures == 1);
  CHECK(errors.has(fmt::format("(lease {})", r.parts[0].lease)));
  CHECK(errors.has("has lost its latest entries"));
}
