#pragma once

#include <algorithm>
#include <map>
#include <span>

#include "actors/host_fixture.hpp"
#include "actors/serving/front/front_requests.hpp"

// The requests of a front whose decoders, network and clock are the test itself.

namespace troupe::actors::tests {

using ending = generated::ending;
using tokens = std::vector<std::uint32_t>;

inline constexpr address this_front = front_address(0);

struct received_updates {
  std::vector<std::uint32_t> tokens;
  std::vector<completion_update> all, ends;
};

/// A front of dc1.
struct front_fixture : host_fixture {
  front_fixture() : host_fixture{this_front, 100} {
    host.incarnation = 3;
    front = {host, cluster_with_fronts(1)};
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
  void submit(std::uint64_t number, std::uint32_t max_tokens = 8,
              const tokens& prompt = {10, 20, 30}) {
    model_prompt p{"m", {}, prompt};
    p.what.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    p.what.max_tokens = max_tokens, p.what.last_tokens = {0};
    front.submit(number, p, [this, number](const completion_update& n) {
      auto& h = received[number];
      CHECK(n.first == h.tokens.size());
      for (const auto& t : n.tokens) h.tokens.push_back(t.chosen.token);
      h.all.push_back(n);
      if (n.finish != ending::none) h.ends.push_back(n);
    });
  }
  /// A statement of the decoder on this node about the latest request to it.
  void answer(address node, std::uint32_t first, const tokens& made, ending finish = ending::none,
              reason why = {}) {
    const auto asked = latest<generate>(node).first;
    generated g;
    g.name = asked.name, g.lease = asked.lease, g.first = first, g.finish = finish;
    g.why = std::move(why);
    for (const auto t : made) g.tokens.push_back({{t, -1}, {}});
    front.on_message(node, g);
  }
  void wait(double s) {
    for (const auto until = clock->now + s; clock->now < until - 1e-9;) {
      clock->now += front_requests::tick_s;
      front.on_tick();
    }
  }

  front_requests front;
  std::map<std::uint64_t, received_updates> received;
  std::uint64_t sequence = 0, statements = 0;
  std::map<decoder_name, std::uint64_t> leases;  // with their node's incarnation
};

inline tokens tokens_of(const payload& p) {
  tokens all(p.bytes().size() / 4);
  std::copy(p.bytes().begin(), p.bytes().end(), std::as_writable_bytes(std::span{all}).begin());
  return all;
}

}  // namespace troupe::actors::tests
