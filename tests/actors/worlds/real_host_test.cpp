#include "actors/worlds/real_host.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <span>

#include "harness/scratch.hpp"
#include "messages/base/whole_file.hpp"
#include "planners/policy/policy.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/private_files.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/world.hpp"
#include "runtime/zeromq/keys.hpp"

using namespace troupe;
using namespace troupe::actors;
using troupe::runtime::test::two_datacenters;

namespace {

constexpr double limit_s = 30, hour_ms = 3.6e6;

real_host_options client_of(const std::string& controller) {
  real_host_options o;
  o.upstream = controller;
  return o;
}

/// The hosts of a small cluster in this process, over loopback.
struct real_cluster {
  troupe::test::scratch room;
  std::shared_ptr<const cluster> what = [] {
    auto c = two_datacenters();
    c.settings.heartbeat_s = 0.1;
    // Only in virtual time, or emulated, does the rate of the cluster file delay tensors.
    c.wan = {{.a = 0, .b = 1, .rtt_ms = hour_ms, .node_gbps = 10}};
    return std::make_shared<const cluster>(std::move(c));
  }();
  std::unique_ptr<real_host> controller, first, second, node, client;

  real_host_options options(const std::string& name, const std::string& upstream = {}) const {
    real_host_options o;
    o.cluster = what;
    o.upstream = upstream;
    if (!name.starts_with("node")) o.listen = "tcp://127.0.0.1:*";
    o.state = room / name;
    return o;
  }
  static std::unique_ptr<real_host> must(expected<std::unique_ptr<real_host>> h) {
    INFO((h ? std::string{} : h.error().text));
    REQUIRE(h);
    return std::move(*h);
  }
  explicit real_cluster(
      std::shared_ptr<const planners::policy> policy = planners::make_policy("frenzy")) {
    controller = must(real_host::controller(options("controller"), std::move(policy), true));
    first = must(real_host::gateway(options("first", controller->endpoint()), 0));
    auto o = options("second", controller->endpoint());
    o.gateways = {{0, first->endpoint()}};
    second = must(real_host::gateway(o, 1));
    node = must(real_host::node(options("node", first->endpoint()), 0));
    client = must(real_host::client(client_of(controller->endpoint()), limit_s));
  }
  template <class Reply>
  Reply ask(message m) const {
    const auto a = client->ask(std::move(m), limit_s).reply;
    INFO((a ? std::string{} : a.error().text));
    REQUIRE(a);
    REQUIRE(std::holds_alternative<Reply>(a->first));
    return std::get<Reply>(a->first);
  }
};

submit_job a_program(const std::string& script) {
  submit_job s;
  s.spec.name = "one";
  s.spec.model.name = "bert-large";
  s.spec.model.family = "bert";
  s.spec.model.hidden = 1024;
  s.spec.model.layers = 24;
  s.spec.model.heads = 16;
  s.spec.model.sequence = 512;
  s.spec.model.vocabulary = 30522;
  s.spec.global_batch = 4;
  s.spec.program.command = {"sh", "-c", script};
  return s;
}

}  // namespace

TEST_CASE("a program runs on a cluster of real hosts, and a client sees it finish") {
  const real_cluster c;
  const auto job = c.ask<submit_reply>(a_program("echo hello; exit 0")).job;
  REQUIRE(job != 0);
  REQUIRE(runtime::wait_until(
      [&] {
        const auto all = c.ask<query_reply>(query_jobs{}).jobs;
        return all.size() == 1 && is_final(all[0].state);
      },
      limit_s, 0.05));
  CHECK(c.ask<query_reply>(query_jobs{}).jobs[0].state == job_state::finished);
  const auto at_node = c.what->nodes[0].name;
  CHECK(std::filesystem::exists(c.room / "controller/journal.sqlite"));
  CHECK(std::filesystem::exists(c.room / "node/logs"));
  CHECK_FALSE(std::filesystem::exists(c.room / "first/logs"));
  // A node listens on loopback, as its gateway does. A host without a cluster file is a client.
  CHECK(c.node->endpoint().starts_with("tcp://127.0.0.1:"));
}

TEST_CASE("a controller logs decisions that take longer than a heartbeat, and no others") {
  struct slow : planners::policy {
    mutable std::atomic<int> decisions = 0;
    std::string_view name() const override { return "slow"; }
    reason why_waiting(const planners::snapshot&, job_id) const override { return {}; }
    std::vector<planners::decision> decide(const planners::snapshot&,
                                           random_source&) const override {
      if (++decisions == 2) runtime::pause(0.3);
      return {};
    }
  };
  std::mutex guarded;
  std::string said;
  const auto lines = [&] {
    const std::lock_guard lock{guarded};
    return said;
  };
  struct captured_log {
    ~captured_log() { runtime::set_log_sink({}); }
  };
  const auto policy = std::make_shared<const slow>();
  const captured_log until_the_hosts_have_ended;
  runtime::set_log_sink([&](runtime::log_level, std::string_view line) {
    const std::lock_guard lock{guarded};
    if (line.find("a decision took") != std::string_view::npos) said += std::string{line} + '\n';
  });
  const real_cluster c{policy};
  const auto decided = [&](int n) {
    REQUIRE(c.ask<submit_reply>(a_program("exit 0")).job != 0);
    return runtime::wait_until([&] { return policy->decisions >= n; }, limit_s, 0.01);
  };
  REQUIRE(decided(1));
  CHECK(lines().empty());
  REQUIRE(decided(2));
  REQUIRE(runtime::wait_until([&] { return !lines().empty(); }, limit_s, 0.01));
  REQUIRE(decided(3));
  const auto all = lines();
  CHECK_THAT(all, Catch::Contains(" warn scheduler: a decision took longer than a heartbeat "
                                  "policy=slow took_s="));
  CHECK_THAT(all, Catch::Contains("heartbeat_s=0.1 waiting="));
  CHECK(std::ranges::count(all, '\n') == 1);
}

TEST_CASE(
    "a real gateway sends tensors at once over a link that the cluster file does not emulate") {
  const real_cluster c;
  const auto open = [&](node_index n, const real_host& gateway) {
    runtime::zeromq_options o;
    o.name = c.what->nodes[n].name;
    o.cluster = *c.what;
    o.incarnation = 1;
    o.upstream = gateway.endpoint();
    o.connections = 2;
    return runtime::test::must_open(std::move(o));
  };
  // More may come while they are being closed: they give no credit.
  runtime::test::mailbox from{open(1, *c.first), false}, to{open(2, *c.second), false};
  const auto a = node_address(1), b = node_address(2);
  const auto came = [&] {
    for (const auto& f : to.take())
      if (const auto m = decode(f.header.bytes()); m && std::holds_alternative<tensor>(m->second))
        return true;
    return false;
  };
  const auto body = std::as_bytes(std::span{"tensor"});
  std::uint32_t sent = 0;
  CHECK(runtime::wait_until(
      [&] {
        tensor t;  // each another one: those before the connections are open are lost
        t.from = {1, 0, 0};
        t.to_stage = 1;
        t.microbatch = sent++;
        t.bytes = body.size();
        t.path = {0, 1, 1};
        from.net().send(b, encode(a, b, t, payload{std::vector(body.begin(), body.end())}),
                        runtime::tensor_lane);
        return came();
      },
      limit_s));
}

TEST_CASE("gateways open as many connections as fill their link, and one if its rate is unknown") {
  auto c = two_datacenters();
  CHECK(wan_connections(c, 0, 1) == 1);  // no such link
  c.wan = {{.a = 0, .b = 1, .node_gbps = 10}};
  CHECK(wan_connections(c, 0, 1) == 1);
  for (const auto& [one_gbps, connections] :
       {std::pair{2.5, 4u}, {3.0, 4u}, {10.0, 1u}, {40.0, 1u}, {0.625, 16u}, {0.1, 16u}}) {
    c.wan[0].connection_gbps = one_gbps;
    CAPTURE(one_gbps);
    CHECK(wan_connections(c, 0, 1) == connections);
    CHECK(wan_connections(c, 1, 0) == connections);
  }
}

TEST_CASE("a host runs until SIGTERM, or until a newer incarnation supersedes it") {
  real_cluster c;
  // To this thread: one that an earlier test has left may not block the signal.
  REQUIRE(::pthread_kill(::pthread_self(), SIGTERM) == 0);
  CHECK(c.first->run());
  auto o = c.options("another start", c.controller->endpoint());
  // More starts than the first: a directory without a count begins with the minute of the clock.
  REQUIRE(runtime::prepare_private_directory(o.state));
  REQUIRE(write_whole_file(o.state + "/starts", "100000000\n", 0600));
  const auto newer = real_cluster::must(real_host::gateway(o, 0));
  const auto superseded = c.first->run();
  REQUIRE_FALSE(superseded);
  CHECK(superseded.error().code == reason::kind::stale);
}

TEST_CASE("a host whose state is in use, or whose controller does not answer, is not started") {
  const real_cluster c;
  CHECK_FALSE(
      real_host::controller(c.options("controller"), planners::make_policy("frenzy"), true));
  CHECK_FALSE(real_host::node(c.options("node", c.first->endpoint()), 0));
  CHECK_FALSE(real_host::client(client_of("tcp://127.0.0.1:1"), 0.05));
}

TEST_CASE("a node listens on all interfaces with keys, and on loopback only without them") {
  CHECK(listen_of_node("tcp://127.0.0.1:7", false) == "tcp://127.0.0.1:*");
  CHECK(listen_of_node("tcp://127.0.0.1:7", true) == "tcp://127.0.0.1:*");
  CHECK(listen_of_node("tcp://10.0.0.1:7", true) == "tcp://*:*");
  CHECK(listen_of_node("tcp://10.0.0.1:7", false).empty());
  CHECK(listen_of_node("ipc://x", true).empty());
  CHECK(listen_of_node("ipc://x", false).empty());
}
