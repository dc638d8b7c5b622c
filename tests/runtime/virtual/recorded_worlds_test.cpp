#include "harness/recorded.hpp"
#include "runtime/virtual/paced_links.hpp"
#include "runtime/virtual/world_fixture.hpp"

// The times of all frames, crashes and clocks, under faults of all kinds, from seeds.

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::tests;
using troupe::test::recording;

namespace {

double some_time(random_source& r, double max) {
  return max * r.uniform();
}

/// The two sites, and at times a third of which the file has little.
cluster some_sites(random_source& r) {
  auto c = two_sites();
  if (r.chance(0.5)) {
    c.datacenters.push_back({"north", ""});
    c.nodes.push_back({"n4", 2, 0, 8, {"nvlink", 4800, 1}, {"", 0, 0}});
    c.nodes.push_back({"n5", 2, 0, 8, {"nvlink", 4800, 1}, {"ib", 80, 5}});
    if (r.chance(0.5)) c.wan.push_back({0, 2, 20, 0, 2});
  }
  for (auto& n : c.nodes)
    if (r.chance(0.3)) n.inter = {"slow", 0.1, 50};
  return c;
}

fault_plan some_faults(random_source& r) {
  fault_plan f;
  if (r.chance(0.3)) f.from_s = some_time(r, 10);
  if (r.chance(0.5)) f.until_s = 20 + some_time(r, 40);
  if (r.chance(0.5)) f.loss = 0.1 * r.uniform();
  if (r.chance(0.5)) f.duplication = 0.1 * r.uniform();
  if (r.chance(0.5)) f.reordering = 0.2 * r.uniform();
  f.reorder_delay_s = some_time(r, 0.5);
  if (r.chance(0.5)) f.node_crashes_per_hour = 200 * r.uniform();
  if (r.chance(0.5)) f.gateway_crashes_per_hour = 100 * r.uniform();
  if (r.chance(0.5)) f.controller_crashes_per_hour = 100 * r.uniform();
  if (r.chance(0.7)) f.mean_down_s = some_time(r, 4);
  if (r.chance(0.3)) f.torn_append = 0.05;
  if (r.chance(0.5)) f.clock_drift = 0.1 * r.uniform();
  if (r.chance(0.5)) f.wall_skew_s = 100 * r.uniform();
  if (r.chance(0.5)) f.wall_steps_per_hour = 300 * r.uniform();
  const double from = some_time(r, 30), until = from + some_time(r, 20);
  if (r.chance(0.4)) f.partitions.push_back({{"west"}, {}, from, until});
  if (r.chance(0.4)) f.partitions.push_back({{"n0"}, {"n1", "east/gateway"}, until, until + 5});
  if (r.chance(0.4)) f.crashes.push_back({"east", from, 1});
  f.slow_nodes = {{"n1", 3, from, until}, {"west", 2, 10, 30}};
  f.slow_links = {{"east", "west", 4, from, until}, {"west", "east", 2, 5, 25}};
  return f;
}

frame some_tensor(random_source& r, address from, address to) {
  tensor t;
  t.from = {1, std::uint32_t(r.below(2)), std::uint32_t(r.below(3))};
  t.to_pipeline = t.from.pipeline, t.to_stage = t.from.stage + 1;
  t.bytes = 1 + r.below(50'000'000);
  return encode(from, to, t, zeros(r.below(100)));
}

}  // namespace

TEST_CASE("virtual worlds with random faults behave as recorded") {
  recording all{"runtime", "worlds"};
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    all.begin(seed);
    random_source r{seed};
    const auto c = some_sites(r);
    virtual_options o;
    o.seed = seed;
    o.faults = some_faults(r);
    if (r.chance(0.3)) o.credit_frames = 20;
    fixture* world = nullptr;
    o.on_crash = [&](address a) { all.add("dies", a, world->world.now_s()); };
    fixture f{o, c};
    world = &f;
    std::vector<address> all_hosts{controller};
    for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
      all_hosts.push_back(gateway_address(d));
    for (node_index n = 0; n < c.nodes.size(); ++n) all_hosts.push_back(node_address(n));
    const auto hosts = all_hosts.size();
    for (std::size_t a = 0; a <= hosts; ++a) {
      const auto self = a < hosts ? all_hosts[a] : client;
      f.add(self, [&](const host& me, const frame& x) {
        const auto e = peek(x.header.bytes());
        all.add(f.world.now_s(), me.self, me.incarnation, e->from, e->to, e->type, x.size());
        if (e->to != me.self) return void(me.net->send(e->to, x, tensor_lane));
        if (!r.chance(0.7)) return;
        if (me.journal) all.add(me.journal->append(job_ended{}).has_value());
        me.net->send(e->from, encode(me.self, e->from, numbered(r.next()),
                                     zeros(r.below(r.chance(0.2) ? 1'000'000 : 500))));
      });
    }
    for (int i = 0; i < 150; ++i)
      f.world.at(some_time(r, 60), [&f, &r, &all_hosts] {
        const auto from = all_hosts[r.below(all_hosts.size())],
                   to = all_hosts[r.below(all_hosts.size())];
        if (r.chance(0.1)) {
          f.send(client, controller, r.next());
        } else if (r.chance(0.5)) {
          f.send(from, to, r.next(), r.below(r.chance(0.2) ? 3'000'000 : 300));
        } else {
          for (int n = 0; n < 3; ++n) f.nets[from]->send(to, some_tensor(r, from, to), tensor_lane);
        }
      });
    for (double t = 2.5; t < 70; t += 2.5) {
      f.world.run_until(t);
      for (const auto a : all_hosts)
        all.add(f.hosts[a].clock->now_s(), f.hosts[a].clock->wall_s(), f.world.is_up(a),
                f.world.incarnation(a), f.world.slowdown(a));
      for (std::uint32_t a = 0; a < c.datacenters.size(); ++a)
        for (std::uint32_t b = 0; b < c.datacenters.size(); ++b)
          all.add(f.world.link_slowdown(a, b));
    }
    const auto n = f.world.count();
    all.add(n.network.sent, n.delivered, n.network.lost, n.network.duplicated, n.network.reordered,
            n.network.cut, n.network.unreachable, n.network.refused, n.events, n.handlers,
            n.crashes, n.torn_appends, n.failures, f.world.fingerprint());
  }
  all.check();
}

TEST_CASE("tensors on paced links leave and arrive as recorded") {
  recording all{"runtime", "paced_links"};
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    all.begin(seed);
    random_source r{seed};
    paced_links::rates to(3);
    for (auto& x : to)
      if (r.chance(0.8)) {
        x.emplace();
        if (r.chance(0.8)) x->node_gbps = 0.1 + r.uniform();
        if (r.chance(0.5)) x->connection_gbps = 0.1 + 0.3 * r.uniform();
        if (r.chance(0.6)) x->delay_ns = time_ns(r.below(50'000'000));
        if (r.chance(0.4)) x->jitter_ns = time_ns(r.below(20'000'000));
      }
    link_slowdown slow;
    if (r.chance(0.3)) slow = [](std::uint32_t d) { return 1.0 + d; };
    paced_links links{to, random_source{seed}, slow};
    time_ns now = 0;
    for (std::uint32_t token = 0; token < 60; ++token) {
      link_pacing::transfer t;
      t.datacenter = std::uint32_t(r.below(3));
      if (!links.paces(t.datacenter)) {
        all.add(links.delay_ns(t.datacenter));
        continue;
      }
      t.lease = 1 + r.below(2);
      t.from_stage = std::uint32_t(r.below(2)), t.to_stage = 1 - t.from_stage;
      t.first_pair = std::uint32_t(r.below(3)), t.pairs = std::uint32_t(r.below(3));
      t.connections = 1 + std::uint32_t(r.below(3));
      t.parts = std::uint32_t(r.below(4));
      t.bytes = double(r.below(2'000'000));
      if (r.chance(0.2))
        links.start_small(now, token, t.datacenter);
      else
        all.add(token, links.start(now, token, t));
      now += time_ns(r.below(5'000'000));
      while (const auto e = links.take_event(now))
        all.add(e->token, e->part, e->arrived, e->left, e->last);
      if (r.chance(0.05)) links.forget(now - 10'000'000);
      all.add(links.next_event_at(), links.hops());
    }
    while (links.next_event_at() != never_ns) {
      now = links.next_event_at();
      const auto e = *links.take_event(now);
      all.add(now, e.token, e.part, e.arrived, e.left, e.last);
    }
    links.forget(now + 1);
    CHECK(links.hops() == 0);
  }
  all.check();
}
