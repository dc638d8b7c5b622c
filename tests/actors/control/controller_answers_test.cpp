#include "actors/control/spoken_world.hpp"

// The controller's messages to nodes and clients that are the test itself.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

constexpr address a_client = first_client_address + 1;

struct asked_controller : spoken_world {
  explicit asked_controller(double heartbeat_s = 1) {
    cluster_->settings.heartbeat_s = heartbeat_s;
    cluster_->settings.lease_s = 30;
    world.add_host(controller_address, [this](const runtime::host& h) {
      return start_controller(world.system(), h,
                              {cluster_, planners::make_policy("frenzy"), false, true, {}, {}})
          .all;
    });
    for (address g = 1; g <= 3; ++g) speak_for(g);
    speak_for(a_client);
  }
  /// Every node but those of the last datacenter reports; node 0 has the most GPUs.
  void nodes_report() {
    for (node_index n = 0; n < cluster_->nodes.size(); ++n) report(n, {});
  }
  void report(node_index n, std::vector<part_report> parts) {
    node_report r;
    r.incarnation = 7;
    r.sequence = ++sequence;
    for (const auto g : {dc1, dc2, dc2 + 1})
      for (const auto& o : take<node_orders>(g))
        if (!o.work.empty()) working = o;
    if (working)
      r.epoch = working->epoch, r.orders = working->sequence, r.journal = working->journal;
    r.parts = std::move(parts);
    say(gateway_address(cluster_->nodes[n].datacenter), node_address(n), controller_address, r);
  }
  void submit(job_spec job) {
    say(a_client, a_client, controller_address, submit_job{++asked, job});
  }
  template <class Reply>
  Reply ask(message m) {
    take<Reply>(a_client);
    say(a_client, a_client, controller_address, m);
    const auto all = take<Reply>(a_client);
    REQUIRE(all.size() == 1);
    return all[0];
  }
  job_status job(job_id id = 1) { return ask<query_reply>(query_jobs{++asked, id}).jobs.at(0); }
  /// The node that has been ordered to do the job's work, and the order.
  std::pair<node_index, node_orders> ordered() {
    for (const auto g : {dc1, dc2, dc2 + 1})
      for (const auto& o : take<node_orders>(g))
        if (!o.work.empty()) working = o;
    REQUIRE(working);
    return {job().where.at(0).node, *working};
  }
  std::vector<node_orders> orders_after(const message& m) {
    for (const auto g : {dc1, dc2, dc2 + 1}) take<node_orders>(g);
    say(a_client, a_client, controller_address, m);
    std::vector<node_orders> all;
    for (const auto g : {dc1, dc2, dc2 + 1})
      for (const auto& o : take<node_orders>(g)) all.push_back(o);
    return all;
  }

  std::uint64_t sequence = 0, asked = 100;
  std::optional<node_orders> working;
};

part_report running(lease_id lease, std::uint64_t iterations) {
  part_report p;
  p.lease = lease;
  p.iterations = iterations;
  return p;
}

}  // namespace

TEST_CASE("a reply says where nodes are, how they are linked and what was decided, if asked") {
  asked_controller c;
  c.nodes_report();
  c.world.run_until(4);
  const auto before = c.ask<query_reply>(query_jobs{++c.asked, 9, true});
  REQUIRE(before.view);
  REQUIRE(before.view->datacenters.size() == c.cluster_->nodes.size());
  for (node_index n = 0; n < c.cluster_->nodes.size(); ++n)
    CHECK(before.view->datacenters[n] == c.cluster_->nodes[n].datacenter);
  CHECK(before.view->wan == c.cluster_->wan);
  CHECK(before.view->scheduling.started == 0);
  c.submit(harness::small_job("j", 1000));
  c.world.run_until(6);
  const auto after = c.ask<query_reply>(query_jobs{++c.asked, 1, true});
  CHECK(after.jobs.size() == 1);
  CHECK(after.view->scheduling.started == 1);
  CHECK(after.view->scheduling.rounds > before.view->scheduling.rounds);
  CHECK_FALSE(c.ask<query_reply>(query_jobs{++c.asked, 1}).view);
  CHECK_FALSE(c.ask<query_reply>(query_jobs{++c.asked, 0}).view);
}

TEST_CASE("the start-up window is three heartbeats long") {
  for (const double heartbeat_s : {1.0, 2.0}) {
    asked_controller c{heartbeat_s};
    c.submit(harness::small_job("j", 1000));
    c.world.run_until(3 * heartbeat_s - 0.1);
    CHECK(c.job().waiting_reason == "nodes to report");
    CHECK(c.ask<query_reply>(query_jobs{1, 0}).jobs.at(0).waiting_reason == "nodes to report");
    c.world.run_until(3 * heartbeat_s + 0.02);
    CHECK(c.job().waiting_reason == "resources");
    CHECK(c.ask<query_reply>(query_jobs{2, 0}).jobs.at(0).waiting_reason == "resources");
  }
}

TEST_CASE("a job is cancelled once, and of a node that has not begun it an answer is asked") {
  asked_controller c;
  c.nodes_report();
  c.submit(harness::small_job("j", 1'000'000));
  c.world.run_until(c.world.now_s() + 4);
  const auto [n, order] = c.ordered();
  REQUIRE(order.work.size() == 1);
  CHECK_FALSE(order.answer);
  const auto orders = c.orders_after(cancel_job{++c.asked, 1});
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].work.empty());
  CHECK(orders[0].answer);
  CHECK(c.orders_after(cancel_job{++c.asked, 1}).empty());
  const auto said = c.take<cancel_reply>(a_client);
  REQUIRE(said.size() == 2);
  for (const auto& r : said) CHECK(r.done);
  CHECK(c.job().state == job_state::stopping);
  const auto summary = c.ask<explanation>(explain_job{++c.asked, 1}).summary;
  INFO(summary);
  CHECK(summary.ends_with("cancelled by " + c.job().owner));  // by its name, as it was submitted
}

TEST_CASE("a node that has reported the work it is to end needs not be asked") {
  asked_controller c;
  c.nodes_report();
  c.submit(harness::small_job("j", 1'000'000));
  c.world.run_until(c.world.now_s() + 4);
  const auto n = c.ordered().first;
  c.report(n, {running(1, 0)});
  const auto orders = c.orders_after(cancel_job{++c.asked, 1});
  REQUIRE(orders.size() == 1);
  CHECK_FALSE(orders[0].answer);
}

TEST_CASE("a program's progress is what its node has reported last of this lease") {
  asked_controller c;
  c.nodes_report();
  auto job = harness::small_job("j", 1000);
  job.program.command = {"a program"};
  c.submit(job);
  c.world.run_until(c.world.now_s() + 4);
  const auto n = c.ordered().first;
  for (const std::uint64_t done : {10, 25, 25}) {
    c.report(n, {running(1, done)});
    CHECK(c.job().iteration == done);
  }
}

TEST_CASE("of a training only the trainer's reports of the present lease are acknowledged") {
  asked_controller c;
  c.nodes_report();
  auto job = harness::small_job("j", 1000);
  job.train.emplace();
  c.submit(job);
  c.world.run_until(c.world.now_s() + 4);
  const auto n = c.ordered().first;
  const auto acknowledged = [&](lease_id lease, job_id id, node_index from) {
    training_report r;
    r.lease = lease;
    r.job = id;
    r.sequence = ++c.sequence;
    const auto g = gateway_address(c.cluster_->nodes[from].datacenter);
    c.say(g, node_address(from), controller_address, r);
    return c.take<training_report_ack>(g).size() == 1;
  };
  CHECK(acknowledged(1, 1, n));
  CHECK_FALSE(acknowledged(2, 1, n));
  CHECK_FALSE(acknowledged(1, 2, n));
  CHECK_FALSE(acknowledged(1, 1, n == 0 ? 1 : 0));
  CHECK(acknowledged(1, 1, n));
}

TEST_CASE("jobs that start together are explained with the GPUs that each found") {
  asked_controller c;
  for (int i = 0; i < 3; ++i) {
    auto job = harness::small_job("j", 1'000'000, 1);
    job.request.gpus = 1;
    c.submit(job);
  }
  c.nodes_report();
  c.world.run_until(c.world.now_s() + 4);
  std::map<node_index, std::vector<std::string>> by_node;
  for (job_id id = 1; id <= 3; ++id) {
    const auto e = c.ask<explanation>(explain_job{++c.asked, id});
    REQUIRE(e.job.where.size() == 1);
    REQUIRE_FALSE(e.placement.empty());
    by_node[e.job.where[0].node].push_back(e.placement.front());
  }
  for (const auto& [n, said] : by_node)
    for (std::size_t i = 0; i < said.size(); ++i)
      CHECK(said[i].ends_with(": 1 of " + std::to_string(c.cluster_->nodes[n].gpus - i) +
                              " idle GPUs used"));
  CHECK(by_node.size() < 3);
}
