#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "actors/host_fixture.hpp"
#include "actors/worlds/wiring.hpp"
#include "messages/base/random.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/virtual/virtual_world.hpp"

// Fronts and gateways in virtual time, with decoders that the test plays: a token depends on the
// seed and the position alone.

using namespace troupe;
using namespace troupe::actors;
using ending = generated::ending;

namespace {

std::uint32_t token_at(std::uint64_t seed, std::size_t position) {
  return static_cast<std::uint32_t>(seed * 1000 + position + 1);
}

/// Decodes a token of every request each 10 ms, and repeats tokens that are not acknowledged.
class played_decoder {
 public:
  played_decoder(runtime::virtual_world& world, runtime::host h, std::shared_ptr<const cluster> c,
                 lease_id lease)
      : world_{world}, host_{std::move(h)}, cluster_{std::move(c)}, lease_{lease} {}

  void on_frame(const frame& f) {
    host_.net->handled(f);
    const auto m = decode(f.header.bytes());
    if (!m) return;
    const auto now = host_.clock->now_s();
    if (const auto* g = std::get_if<generate>(&m->second)) {
      auto& r = requests_[g->name];
      if (r.asked.name == g->name) return;
      r.asked = *g;
      r.made = r.received = g->replay;
      r.last_seen_s = now;
      CHECK(f.body.bytes().size() == 4 * (g->what.prompt_tokens + g->replay));
      attempts = std::max(attempts, g->name.attempt);
    } else if (const auto* h = std::get_if<generated_ack>(&m->second)) {
      const auto at = requests_.find(h->name);
      if (at == requests_.end()) return;
      at->second.received = std::max<std::size_t>(at->second.received, h->tokens);
      at->second.last_seen_s = now;
      if (h->finished) requests_.erase(at);
    } else if (const auto* c = std::get_if<cancel_generate>(&m->second)) {
      requests_.erase(c->name);
      generated over;
      over.name = c->name, over.lease = lease_, over.finish = ending::failed;
      say(over);
    }
  }

  void step() {
    const auto now = host_.clock->now_s();
    if (++steps_ % 25 == 1) send_state();
    std::erase_if(requests_, [&](const auto& r) {
      return now - r.second.last_seen_s > cluster_->settings.lease_s;
    });
    for (auto& [name, r] : requests_) {
      if (r.made < r.asked.what.max_tokens) ++r.made;
      generated g;
      g.name = name, g.lease = lease_, g.first = static_cast<std::uint32_t>(r.received);
      for (auto i = r.received; i < r.made; ++i)
        g.tokens.push_back({{token_at(r.asked.what.how.seed, i), -1}, {}});
      if (r.made == r.asked.what.max_tokens) g.finish = ending::length;
      if (!g.tokens.empty() || g.finish != ending::none) say(g);
    }
  }

  std::size_t held() const { return requests_.size(); }
  std::uint32_t attempts = 0;

 private:
  struct held_request {
    generate asked;
    std::size_t made = 0, received = 0;
    double last_seen_s = 0;
  };

  void say(const message& m) {
    const auto front = std::holds_alternative<generated>(m) ? std::get<generated>(m).name.front : 0;
    host_.net->send(front, encode(host_.self, front, m));
  }
  void send_state() {
    decoder_state s;
    s.lease = lease_, s.sequence = ++said_, s.model = "m", s.context = 1024;
    s.pages = s.free_pages = 64, s.running = static_cast<std::uint32_t>(requests_.size());
    s.max_sequences = 64, s.incarnation = host_.incarnation;
    for (std::uint32_t f = 0; f < cluster_->fronts.size(); ++f) {
      const auto to = front_address(f);
      host_.net->send(to, encode(host_.self, to, s));
    }
  }

  runtime::virtual_world& world_;
  runtime::host host_;
  std::shared_ptr<const cluster> cluster_;
  lease_id lease_;
  std::uint64_t steps_ = 0, said_ = 0;
  std::map<request_name, held_request> requests_;
};

struct notified {
  std::vector<std::uint32_t> tokens;
  std::uint32_t ends = 0, attempts = 0;
  ending finish = ending::none;
};

struct world_of_fronts {
  explicit world_of_fronts(fault_plan faults, std::uint64_t seed = 1)
      : c{tests::cluster_with_fronts()}, world{*c, {.seed = seed, .faults = std::move(faults)}} {
    world.add_host(controller_address, [this](const runtime::host& h) {
      h.net->listen([this, h](const frame& f) {
        h.net->handled(f);
        const auto m = decode(f.header.bytes());
        const auto* r = m ? std::get_if<front_report>(&m->second) : nullptr;
        if (r) reports[m->first.from].push_back(*r);
      });
      state_leases(h);
      return std::vector<caf::actor>{};
    });
    for (std::uint32_t d = 0; d < c->datacenters.size(); ++d)
      world.add_host(gateway_address(d), [this](const runtime::host& h) {
        return start_gateway(world.system(), h, c, true);
      });
    for (node_index n = 0; n < c->nodes.size(); ++n) add_decoder(n);
    for (std::uint32_t f = 0; f < c->fronts.size(); ++f)
      world.add_host(front_address(f), [this, f](const runtime::host& h) {
        fronts[f] = {};
        return start_front(world.system(), h, c, fronts[f]);
      });
  }

  /// Every heartbeat: which leases the decoders have that are played.
  void state_leases(const runtime::host& h) {
    world.at(world.now_s() + c->settings.heartbeat_s / 4, [this, h] {
      serving_leases all;
      all.epoch = 1, all.sequence = ++statements;
      all.models.push_back(harness::model_named("m"));
      for (const auto& [n, lease] : lease_of)
        all.decoders.push_back({lease, n, world.incarnation(node_address(n)), 0});
      for (std::uint32_t f = 0; f < c->fronts.size(); ++f) {
        const auto to = front_address(f);
        h.net->send(to, encode(controller_address, to, all));
      }
      state_leases(h);
    });
  }

  void add_decoder(node_index n) {
    world.add_host(node_address(n), [this, n](const runtime::host& h) {
      lease_of[n] = ++leases;
      auto d = std::make_shared<played_decoder>(world, h, c, leases);
      decoders[n] = d;
      h.net->listen([d](const frame& f) { d->on_frame(f); });
      repeat(h.self, d, world.incarnation(h.self));
      return std::vector<caf::actor>{};
    });
  }
  void repeat(address a, const std::shared_ptr<played_decoder>& d, std::uint64_t incarnation) {
    world.at(world.now_s() + 0.01, [=, this] {
      if (!world.is_up(a) || world.incarnation(a) != incarnation) return;
      d->step();
      repeat(a, d, incarnation);
    });
  }

  std::uint64_t submit(std::uint32_t front, std::uint64_t seed, std::uint32_t max_tokens) {
    model_prompt p{"m", {}, std::vector<std::uint32_t>(5, 1)};
    p.what.prompt_tokens = 5, p.what.max_tokens = max_tokens, p.what.how.seed = seed;
    return fronts[front].submit(p, [this, seed](const completion_update& n) {
      auto& t = received[seed];
      for (const auto& x : n.tokens) t.tokens.push_back(x.chosen.token);
      t.attempts = n.attempts;
      if (n.finish == ending::none) return;
      ++t.ends;
      t.finish = n.finish;
    });
  }
  std::size_t held() const {
    std::size_t all = 0;
    for (const auto& [n, d] : decoders)
      if (world.is_up(node_address(n))) all += d->held();
    return all;
  }
  /// Each ended once, and the completed ones have the tokens of their seeds.
  void check(std::uint64_t requests) {
    for (std::uint64_t seed = 1; seed <= requests; ++seed) {
      INFO("request " << seed);
      const auto& t = received[seed];
      CHECK(t.ends == 1);
      CHECK(t.finish == ending::length);
      bool right = true;
      for (std::size_t i = 0; i < t.tokens.size(); ++i)
        right = right && t.tokens[i] == token_at(seed, i);
      CHECK(right);
      CHECK(t.tokens.size() == 20 + seed % 30);
    }
  }

  std::shared_ptr<const cluster> c;
  runtime::virtual_world world;
  std::map<std::uint32_t, completions> fronts;
  std::map<node_index, std::shared_ptr<played_decoder>> decoders;
  std::map<std::uint64_t, notified> received;
  std::map<address, std::vector<front_report>> reports;
  lease_id leases = 0;
  std::uint64_t statements = 0;
  std::map<node_index, lease_id> lease_of;
};

}  // namespace

TEST_CASE("a front gives its requests to the decoders of its datacenter, and all are completed") {
  world_of_fronts w{{}};
  w.world.run_until(1);
  REQUIRE(w.fronts[0].view().models.at("m").decoders == 5);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) w.submit(seed % 2, seed, 20 + seed % 30);
  w.world.run_until(1.2);
  CHECK(w.decoders[4]->held() == 0);
  CHECK(w.fronts[0].view().requests + w.fronts[1].view().requests > 0);
  w.world.run_until(4);
  w.check(40);
  CHECK(w.held() == 0);
  CHECK(w.fronts[0].view().requests == 0);
  for (const auto& [seed, t] : w.received) CHECK(t.attempts == 1);
}

TEST_CASE("fronts report to the controller every heartbeat, with requests and without") {
  world_of_fronts w{{}};
  w.world.run_until(1);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) w.submit(0, seed, 20);
  w.world.run_until(9);
  const auto heartbeats = static_cast<std::size_t>(9 / w.c->settings.heartbeat_s);
  for (std::uint32_t f = 0; f < 2; ++f) {
    const auto& all = w.reports[front_address(f)];
    CHECK(all.size() + 1 >= heartbeats);
    CHECK(all.size() <= heartbeats + 2);
    CHECK(std::ranges::is_sorted(all, {}, &front_report::sequence));
    CHECK(all.back().counts.finished == (f == 0 ? 20 : 0));
    CHECK(all.back().decoders.size() == w.c->nodes.size());
  }
}

TEST_CASE("frames that are lost, repeated and reordered change no token") {
  fault_plan faults;
  faults.loss = 0.1, faults.duplication = 0.1, faults.reordering = 0.2;
  faults.reorder_delay_s = 0.1;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    world_of_fronts w{faults, seed};
    w.world.run_until(2);
    for (std::uint64_t r = 1; r <= 100; ++r)
      w.world.at(2 + 0.02 * static_cast<double>(r), [&w, r] { w.submit(r % 2, r, 20 + r % 30); });
    w.world.run_until(20);
    w.check(100);
    CHECK(w.held() == 0);
  }
}

TEST_CASE("requests of decoders that die go on elsewhere with the same tokens") {
  fault_plan faults;
  faults.loss = 0.02;
  faults.crashes = {{"a-0", 2.3, 30}, {"b-1", 2.4, 1}, {"a-1", 9, 1}};
  world_of_fronts w{faults};
  w.world.run_until(2);
  for (std::uint64_t r = 1; r <= 60; ++r)
    w.world.at(2 + 0.02 * static_cast<double>(r), [&w, r] { w.submit(r % 2, r, 20 + r % 30); });
  w.world.run_until(25);
  w.check(60);
  std::uint32_t again = 0;
  for (const auto& [seed, t] : w.received) again += t.attempts > 1;
  CHECK(again > 3);
  CHECK(w.held() == 0);
}

TEST_CASE("requests wait while their datacenter's gateway is away") {
  fault_plan faults;
  faults.crashes = {{"dc1/gateway", 2.2, 2}};
  world_of_fronts w{faults};
  w.world.run_until(2);
  for (std::uint64_t r = 1; r <= 20; ++r) w.submit(0, r, 20 + r % 30);
  w.world.run_until(15);
  w.check(20);
}

TEST_CASE("cancelled requests and those of a dead front leave the decoders") {
  world_of_fronts w{{}};
  w.world.run_until(1);
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) numbers.push_back(w.submit(0, seed, 900));
  for (std::uint64_t seed = 21; seed <= 30; ++seed) w.submit(1, seed, 900);
  w.world.run_until(1.5);
  CHECK(w.held() == 30);
  for (const auto n : numbers) w.fronts[0].cancel(n);
  w.world.run_until(1.7);
  CHECK(w.held() == 10);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) CHECK(w.received[seed].ends == 0);
  w.world.crash(front_address(1), 0.5);
  w.world.run_until(3);
  CHECK(w.held() == 0);  // its next start does not know them
  w.submit(1, 40, 20);
  w.world.run_until(4);
  CHECK(w.received[40].ends == 1);
}
