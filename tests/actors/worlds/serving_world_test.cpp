#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "actors/host_fixture.hpp"
#include "actors/serving/decoder/simulated_batch.hpp"
#include "actors/serving/front/completions.hpp"
#include "actors/worlds/wiring.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/virtual/virtual_world.hpp"

// Fronts, gateways and nodes with decoders in virtual time. The test is the controller.

using namespace troupe;
using namespace troupe::actors;
using ending = generated::ending;
using Catch::Contains;

namespace {

struct received_completion {
  std::vector<std::uint32_t> tokens;
  std::uint32_t ends = 0, attempts = 0;
  ending finish = ending::none;
  reason why;
};

class serving_world {
 public:
  explicit serving_world(fault_plan faults = {}, std::uint64_t seed = 1, double lease_s = 5)
      : c{with_fronts(lease_s)}, world{*c, {.seed = seed, .faults = std::move(faults)}} {
    world.add_host(controller_address, [this](const runtime::host& h) {
      controller_ = h;
      h.net->listen([this, h](const frame& f) {
        h.net->handled(f);
        if (const auto m = decode(f.header.bytes())) on_message(m->first.from, m->second);
      });
      state_leases();
      return std::vector<caf::actor>{};
    });
    for (std::uint32_t d = 0; d < c->datacenters.size(); ++d)
      world.add_host(gateway_address(d), [this](const runtime::host& h) {
        return start_gateway(world.system(), h, c, true);
      });
    for (node_index n = 0; n < c->nodes.size(); ++n)
      world.add_host(node_address(n), [this, n](const runtime::host& h) {
        node_options o;
        o.cluster = c;
        auto actors = start_node(world.system(), h, std::move(o));
        nodes_[n] = caf::actor_cast<node_actor>(actors.front());
        return actors;
      });
    for (std::uint32_t f = 0; f < c->fronts.size(); ++f)
      world.add_host(front_address(f), [this, f](const runtime::host& h) {
        fronts[f] = {};
        return start_front(world.system(), h, c, fronts[f]);
      });
  }

  /// From now on that node has a decoder.
  void order(node_index n, lease_id lease, const serving& what) { ordered_[n] = {lease, what}; }
  void withdraw(node_index n) { ordered_.erase(n); }
  /// Its process is to end. Once it says so it is no longer ordered, and its lease is over when it
  /// says that it has ended.
  void end(node_index n) {
    caf::anon_send(nodes_.at(n), end_node{});
    ending_.insert(n);
  }

  static serving served() {
    serving s;
    s.model.name = "m";
    s.model.shape = harness::gpt2();
    s.kv_gb = 0.2;  // 84 pages
    s.bubbles = false;
    return s;
  }

  void submit(std::uint32_t front, std::uint64_t seed) {
    model_prompt p{"m", {}, {}};
    p.what.prompt_tokens = prompt_of(seed), p.what.max_tokens = max_of(seed);
    p.what.how.seed = seed;
    fronts[front].submit(p, [this, seed](const completion_update& n) {
      auto& t = received[seed];
      for (const auto& x : n.tokens) t.tokens.push_back(x.chosen.token);
      t.attempts = n.attempts;
      if (n.finish == ending::none) return;
      ++t.ends;
      t.finish = n.finish;
      t.why = n.why;
    });
  }
  static std::uint32_t prompt_of(std::uint64_t seed) {
    return static_cast<std::uint32_t>(1 + seed * 37 % 600);
  }
  static std::uint32_t max_of(std::uint64_t seed) {
    return static_cast<std::uint32_t>(20 + seed % 30);
  }

  /// Each request ended once, with the tokens of its seed.
  void check(std::uint64_t requests) {
    for (std::uint64_t seed = 1; seed <= requests; ++seed) {
      INFO("request " << seed << ": " << received[seed].why.text);
      const auto& t = received[seed];
      CHECK(t.ends == 1);
      CHECK(t.finish == ending::length);
      std::vector<std::uint32_t> right;
      for (std::uint32_t i = 0; i < max_of(seed); ++i)
        right.push_back(simulated_token({{0, 1, 0, seed}, prompt_of(seed) + i, 0}, 50257).token);
      CHECK(t.tokens == right);
    }
  }
  /// No decoder holds anything any more.
  void check_free(std::size_t decoders) {
    const auto v = fronts[0].view();
    const auto& m = v.models.at("m");
    CHECK(m.decoders == decoders);
    CHECK(m.free_pages == m.pages);
    CHECK(m.running == 0);
    CHECK(m.waiting == 0);
  }

  std::shared_ptr<const cluster> c;
  runtime::virtual_world world;
  std::map<std::uint32_t, completions> fronts;
  std::map<std::uint64_t, received_completion> received;
  std::map<node_index, node_report> reports;
  std::map<node_index, part_report> ended;

 private:
  static std::shared_ptr<const cluster> with_fronts(double lease_s) {
    auto c = tests::cluster_with_fronts();
    c->settings.lease_s = lease_s;
    return c;
  }

  void on_message(address from, const message& m) {
    if (const auto* r = std::get_if<node_report>(&m)) {
      const auto n = node_of(from);
      reports[n] = *r;
      if (ending_.contains(n) && !r->parts.empty() &&
          r->parts[0].now != part_report::state::running) {
        ended[n] = r->parts[0];
        withdraw(n);
      }
      answer(n, r->incarnation, r->sequence);
    } else if (const auto* g = std::get_if<gateway_report>(&m)) {
      for (const auto& h : g->heartbeats) answer(h.node, h.incarnation, h.sequence);
    }
  }
  /// To the fronts, which decoders have been ordered.
  void state_leases() {
    serving_leases all;
    all.epoch = all.journal = 1;
    all.sequence = ++sequence_;
    all.models.push_back(served().model);
    for (const auto& [n, work] : ordered_)
      if (const auto at = incarnations_.find(n); at != incarnations_.end())
        all.decoders.push_back({work.first, n, at->second, 0});
    for (std::uint32_t f = 0; f < c->fronts.size(); ++f) {
      const auto to = front_address(f);
      controller_.net->send(to, encode(controller_address, to, all));
    }
    world.at(world.now_s() + c->settings.heartbeat_s / 4, [this] { state_leases(); });
  }
  void answer(node_index n, std::uint64_t incarnation, std::uint64_t sequence) {
    node_orders o;
    o.epoch = o.journal = 1;
    o.sequence = ++sequence_;
    o.incarnation = incarnation;
    o.acknowledged = sequence;
    const auto& parts = reports[n].parts;
    const bool stops = !parts.empty() && parts[0].word == end_word::node_stopped;
    if (const auto at = ordered_.find(n); at != ordered_.end() && !stops) {
      // A new process of the node gets the work as another lease.
      if (incarnations_.try_emplace(n, incarnation).first->second != incarnation) {
        incarnations_[n] = incarnation;
        at->second.first += 100;
      }
      work_order w;
      w.lease = w.job = at->second.first;
      w.incarnation = incarnation;
      w.devices = {0};
      w.serve = at->second.second;
      o.work = {w};
    }
    const auto to = node_address(n);
    controller_.net->send(to, encode(controller_address, to, o));
  }

  runtime::host controller_;
  std::uint64_t sequence_ = 0;
  std::map<node_index, std::pair<lease_id, serving>> ordered_;
  std::map<node_index, std::uint64_t> incarnations_;
  std::map<node_index, node_actor> nodes_;
  std::set<node_index> ending_;
};

}  // namespace

TEST_CASE("fronts' requests are completed by decoders that the controller has ordered",
          "[decoder]") {
  serving_world w;
  w.order(0, 1, w.served());
  w.order(2, 2, w.served());
  w.world.run_until(3);
  REQUIRE(w.fronts[0].view().models.at("m").decoders == 2);
  for (std::uint64_t r = 1; r <= 40; ++r) w.submit(r % 2, r);
  w.world.run_until(20);
  w.check(40);
  w.check_free(2);
  for (const auto& [seed, t] : w.received) CHECK(t.attempts == 1);
  CHECK(w.reports[0].parts.at(0).now == part_report::state::running);
}

TEST_CASE("decoders lose, repeat and change no token on a bad network", "[decoder]") {
  fault_plan faults;
  faults.loss = 0.1, faults.duplication = 0.1, faults.reordering = 0.2;
  faults.reorder_delay_s = 0.1;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    serving_world w{faults, seed, 20};
    w.order(0, 1, w.served());
    w.order(1, 2, w.served());
    w.world.run_until(4);
    for (std::uint64_t r = 1; r <= 60; ++r)
      w.world.at(4 + 0.03 * static_cast<double>(r), [&w, r] { w.submit(r % 2, r); });
    w.world.run_until(40);
    w.check(60);
    w.check_free(2);
  }
}

TEST_CASE("completions of a decoder whose node dies go on elsewhere with the same tokens",
          "[decoder]") {
  fault_plan faults;
  faults.crashes = {{"a-0", 4.05, 3}};
  serving_world w{faults};
  w.order(0, 1, w.served());
  w.order(1, 2, w.served());
  w.world.run_until(3.9);
  for (std::uint64_t r = 1; r <= 40; ++r)
    w.world.at(3.9 + 0.01 * static_cast<double>(r), [&w, r] { w.submit(r % 2, r); });
  w.world.run_until(60);
  w.check(40);
  w.check_free(2);
  std::uint32_t again = 0;
  for (const auto& [seed, t] : w.received) again += t.attempts > 1;
  CHECK(again > 3);
}

TEST_CASE("a decoder that is no longer ordered hands its completions over", "[decoder]") {
  serving_world w;
  w.order(0, 1, w.served());
  w.order(1, 2, w.served());
  w.world.run_until(3);
  for (std::uint64_t r = 1; r <= 60; ++r)
    w.world.at(3 + 0.03 * static_cast<double>(r), [&w, r] { w.submit(0, r); });
  w.world.at(4, [&w] { w.withdraw(0); });
  w.world.run_until(30);
  w.check(60);
  w.check_free(1);
  CHECK(w.reports[0].parts.empty());
}

TEST_CASE("a decoder whose node ends completes what it has begun, and others get the rest",
          "[decoder]") {
  serving_world w;
  w.order(0, 1, w.served());
  w.order(1, 2, w.served());
  w.world.run_until(3.9);
  for (std::uint64_t r = 1; r <= 40; ++r)
    w.world.at(3.9 + 0.01 * static_cast<double>(r), [&w, r] { w.submit(r % 2, r); });
  w.world.at(4.05, [&w] { w.end(0); });
  w.world.run_until(30);
  w.check(40);
  w.check_free(1);
  // Only requests that were on their way to the decoder are begun again.
  std::uint32_t again = 0;
  for (const auto& [seed, t] : w.received) again += t.attempts > 1;
  CHECK(again <= 1);
  CHECK(w.ended[0].now == part_report::state::stopped);
  CHECK(w.ended[0].word == end_word::node_stopped);
  CHECK(w.reports[0].parts.empty());
}

TEST_CASE("a node reports a decoder that cannot serve its model", "[decoder]") {
  serving_world w;
  auto s = w.served();
  s.model.shape.family = "bert";
  w.order(0, 1, s);
  w.world.run_until(3);
  REQUIRE(w.reports[0].parts.size() == 1);
  CHECK(w.reports[0].parts[0].now == part_report::state::failed);
  CHECK_THAT(w.reports[0].parts[0].detail, Contains("cannot be served"));
  CHECK(w.fronts[0].view().models.empty());
}
