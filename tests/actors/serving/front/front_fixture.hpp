#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <utility>
#include <vector>

#include "actors/serving/front/front_requests.hpp"
#include "harness/small_cluster.hpp"
#include "messages/codec/codec.hpp"

// The requests of a front whose decoders, network and clock are the test itself.

namespace troupe::actors {

using ending = generated::ending;

class clock_by_hand final : public runtime::clock {
 public:
  double now_s() const override { return now; }
  double wall_s() const override { return now; }
  double now = 100;
};

class sent_frames final : public runtime::transport {
 public:
  struct one {
    address to = 0;
    message what;
    payload body;
  };
  address self() const override { return 0; }
  bool send(address to, frame f, std::uint32_t) override {
    if (auto m = decode(f.header.bytes())) all.push_back({to, std::move(m->second), f.body});
    return true;
  }
  void listen(receiver) override {}
  void handled(const frame&) override {}

  std::vector<one> all;
};

/// small_cluster with a front in dc1: nodes a-0 and a-1 are in its datacenter, b-0 is not.
inline std::shared_ptr<const cluster> with_front() {
  auto c = harness::small_cluster();
  c->fronts = {{"front-1", 0, ""}};
  return c;
}

inline constexpr address a0 = node_address(0), a1 = node_address(1), b0 = node_address(2),
                         this_front = front_address(0);

struct received_updates {
  std::vector<std::uint32_t> tokens;
  std::vector<completion_update> all, ends;
};

struct front_by_hand {
  front_by_hand() {
    runtime::host h;
    h.self = this_front;
    h.incarnation = 3;
    h.clock = clock;
    h.net = net;
    front = {h, cluster};
  }

  /// The controller states the decoders of `leases`.
  void state_leases() {
    serving_leases all;
    all.epoch = 1, all.sequence = ++statements;
    all.models.push_back(harness::model_named("m"));
    for (const auto& [name, incarnation] : leases)
      all.decoders.push_back({name.lease, node_of(name.node), incarnation, 0});
    front.on_message(controller_address, all);
  }
  void state(address node, lease_id lease, std::uint32_t free = 10, std::uint64_t incarnation = 1) {
    if (std::exchange(leases[{node, lease}], incarnation) != incarnation) state_leases();
    decoder_state s;
    s.lease = lease, s.sequence = ++sequence, s.model = "m", s.context = 256, s.pages = 20;
    s.free_pages = free, s.max_sequences = 4, s.incarnation = incarnation;
    front.on_message(node, s);
  }
  void submit(std::uint64_t number, std::uint32_t max_tokens = 8) {
    model_prompt p{"m", {}, {10, 20, 30}};
    p.what.prompt_tokens = 3, p.what.max_tokens = max_tokens, p.what.last_tokens = {0};
    front.submit(number, p, [this, number](const completion_update& n) {
      auto& h = received[number];
      CHECK(n.first == h.tokens.size());
      for (const auto& t : n.tokens) h.tokens.push_back(t.chosen.token);
      h.all.push_back(n);
      if (n.finish != ending::none) h.ends.push_back(n);
    });
  }
  /// The last message of this kind that was sent to a node; it must be there.
  template <class T>
  std::pair<T, payload> last(address to) const {
    for (auto i = net->all.rbegin(); i != net->all.rend(); ++i)
      if (i->to == to && std::holds_alternative<T>(i->what)) return {std::get<T>(i->what), i->body};
    FAIL("no such message");
    return {};
  }
  template <class T>
  std::size_t count(address to) const {
    return static_cast<std::size_t>(std::count_if(
        net->all.begin(), net->all.end(),
        [&](const auto& s) { return s.to == to && std::holds_alternative<T>(s.what); }));
  }
  /// Sends the front a statement of the decoder that the last `generate` to this node went to.
  void say(address node, std::uint32_t first, const std::vector<std::uint32_t>& tokens,
           ending finish = ending::none, reason why = {}) {
    const auto asked = last<generate>(node).first;
    generated g;
    g.name = asked.name, g.lease = asked.lease, g.first = first, g.finish = finish;
    g.why = std::move(why);
    for (const auto t : tokens) g.tokens.push_back({{t, -1}, {}});
    front.on_message(node, g);
  }
  void wait(double s) {
    for (const auto until = clock->now + s; clock->now < until - 1e-9;) {
      clock->now += front_requests::tick_s;
      front.on_tick();
    }
  }

  std::shared_ptr<const troupe::cluster> cluster = with_front();
  std::shared_ptr<clock_by_hand> clock = std::make_shared<clock_by_hand>();
  std::shared_ptr<sent_frames> net = std::make_shared<sent_frames>();
  front_requests front;
  std::map<std::uint64_t, received_updates> received;
  std::uint64_t sequence = 0, statements = 0;
  std::map<decoder_name, std::uint64_t> leases;  // with their node's incarnation
};

inline std::vector<std::uint32_t> tokens_of(const payload& p) {
  std::vector<std::uint32_t> all(p.bytes().size() / 4);
  std::copy(p.bytes().begin(), p.bytes().end(), std::as_writable_bytes(std::span{all}).begin());
  return all;
}

using tokens = std::vector<std::uint32_t>;

}  // namespace troupe::actors
