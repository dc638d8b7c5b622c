#pragma once

#include <algorithm>
#include <deque>
#include <map>

#include "actors/host_fixture.hpp"
#include "actors/serving/prefill/guest_engine.hpp"
#include "actors/serving/prefill/guest_prompts.hpp"
#include "messages/base/random.hpp"
#include "messages/base/time.hpp"

// The guests of a group, whose gateway, decoder, network, devices and clock are the test itself.

namespace troupe::actors::tests {

inline constexpr address decoder_of_guests = 90, first_guest_node = 10;

/// The blocks of one prompt that its decoder has received.
struct received_prompt {
  received_prompt(prefill_name n, std::size_t guests, bool simulated) {
    for (std::uint32_t g = 0; g < guests; ++g) from.emplace_back(n, g, false, simulated);
  }

  std::vector<block_receiver> from;                                  // by guest
  std::map<std::pair<std::uint32_t, std::uint32_t>, payload> pages;  // by layer and first page
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> counts;  // pages of each
  std::optional<payload> last;
};

class guests_fixture : public recording_peers {
 public:
  struct how {
    double loss = 0, latency_s = 0.001;
    std::uint64_t seed = 1;
    bool ordered = true;    // the network keeps the order of messages
    double corruption = 0;  // share of blocks of which a bit is changed on the way
  };
  using maker = std::function<std::shared_ptr<guest_engine>(guest_shape&, guest_engine::listener)>;

  guests_fixture(guest_group g, bubble_lending lending) : guests_fixture{g, lending, how{}, {}} {}
  guests_fixture(guest_group g, const bubble_lending& lending, how h, const maker& make)
      : group{std::move(g)}, how_{h}, random_{h.seed} {
    for (std::uint32_t i = 0; i < group.guests.size(); ++i) {
      group.guests[i].node = first_guest_node + i;
      group.guests[i].stage = {1, i, 0};
    }
    for (std::uint32_t i = 0; i < group.guests.size(); ++i) {
      auto shape = shape_of({lending, group.guests[i], {}}, first_guest_node + i);
      REQUIRE(shape);
      const auto listener = [this, i](guest_tile_result r) {
        results_.push_back({i, std::move(r)});
      };
      auto& one = guests_.emplace_back();
      one.engine = make ? make(*shape, listener)
                        : std::make_shared<simulated_guest>([this] { return now_s; }, listener);
      simulated = shape->simulated;
      one.prompts = std::make_unique<guest_prompts>(*shape);
    }
  }

  prefill_order order_of(std::uint64_t number, std::uint32_t tokens, std::uint32_t guest) const {
    prefill_order o;
    o.name = name_of(number);
    o.sequence = number;
    o.tokens = tokens;
    o.guest = guest;
    o.group = group;
    o.latest_s = 1000;
    return o;
  }
  /// The gateway orders it of all guests.
  void order(std::uint64_t number, std::uint32_t tokens, const payload& body = {}) {
    for (std::uint32_t g = 0; g < guests_.size(); ++g)
      give(g, order_of(number, tokens, g), g == 0 ? body : payload{});
    await_blocks(number);
  }
  /// The decoder awaits the blocks of a prompt.
  void await_blocks(std::uint64_t number) {
    decoders.try_emplace(number, name_of(number), guests_.size(), simulated);
  }
  void give(std::uint32_t guest, const prefill_order& o, const payload& body = {},
            const reason& refusal = {}) {
    change(guest, [&](auto& p, auto& c) { p.on_order(dc1, o, body, refusal, now_s, c); });
  }
  void cancel(std::uint64_t number) {
    for (std::uint32_t g = 0; g < guests_.size(); ++g)
      change(g, [&](auto& p, auto& c) { p.on_cancel(dc1, name_of(number), c); });
  }
  void receive(std::uint32_t guest, address from, const message& m, const payload& body = {}) {
    change(guest, [&](auto& p, auto& c) {
      if (const auto* b = std::get_if<prefill_block>(&m)) p.on_block(from, *b, body, c);
      if (const auto* r = std::get_if<blocks_received>(&m)) p.on_received(from, *r, now_s, c);
    });
  }

  /// Lets every guest execute up to `steps` operations, in turn, and messages arrive meanwhile.
  void compute(std::size_t steps = 1u << 20) {
    for (std::size_t i = 0; i < steps; ++i) {
      bool any = false;
      for (auto& g : guests_) {
        const auto run = g.engine->next(never);
        if (run.count == 0) continue;
        any = true;
        now_s += run.each_s;
        g.engine->execute(1);
      }
      settle();
      if (any) continue;
      if (network_.empty() && !pending()) return;
      wait();
    }
  }
  void advance(double seconds) {
    now_s += seconds;
    settle();
  }
  /// Delivers what has arrived.
  void settle() {
    for (;;) {
      while (!results_.empty()) {
        auto [guest, r] = std::move(results_.front());
        results_.pop_front();
        change(guest, [&, &r = r](auto& p, auto& c) { p.on_result(std::move(r), now_s, c); });
      }
      if (network_.empty() || network_.begin()->first > now_s) return;
      auto next = std::move(network_.begin()->second);
      network_.erase(network_.begin());
      deliver(next);
    }
  }
  bool pending() const {
    return std::ranges::any_of(guests_, [](const auto& g) { return g.prompts->held() > 0; });
  }

  guest_prompts& prompts(std::uint32_t guest) { return *guests_[guest].prompts; }
  guest_engine& engine(std::uint32_t guest) { return *guests_[guest].engine; }

  guest_group group;
  double now_s = 100;
  bool simulated = true;
  std::map<std::uint64_t, received_prompt> decoders;  // by number
  std::size_t lost = 0, corrupted = 0;                // messages

 private:
  struct member {
    std::shared_ptr<guest_engine> engine;
    std::unique_ptr<guest_prompts> prompts;
  };
  struct under_way {
    address from = 0;
    guest_prompts::outgoing what;
  };

  static prefill_name name_of(std::uint64_t number) { return {decoder_of_guests, 3, number}; }

  /// Calls a guest's prompts and carries out what they ask for.
  template <class Call>
  void change(std::uint32_t guest, Call call) {
    guest_prompts::changes c;
    call(prompts(guest), c);
    for (const auto& n : c.forget) engine(guest).forget(n);
    for (auto& t : c.compute) engine(guest).add(std::move(t));
    for (auto& m : c.send) post(first_guest_node + guest, std::move(m));
  }
  /// Until the next message or timer.
  void wait() {
    double at_s = network_.empty() ? never : network_.begin()->first;
    for (const auto& g : guests_) at_s = std::min(at_s, g.prompts->next_s());
    REQUIRE(at_s < never);
    now_s = std::max(now_s, at_s);
    for (std::uint32_t g = 0; g < guests_.size(); ++g)
      change(g, [&](auto& p, auto& c) { p.on_time(now_s, c); });
    settle();
  }
  void post(address from, guest_prompts::outgoing m) {
    if (random_.chance(how_.loss)) return void(++lost);
    if (how_.corruption > 0 && random_.chance(how_.corruption)) corrupt(m);
    const double extra_s = how_.ordered ? 0 : 0.1 * random_.uniform();
    network_.emplace(now_s + how_.latency_s + extra_s, under_way{from, std::move(m)});
  }
  void corrupt(guest_prompts::outgoing& m) {
    if (!std::holds_alternative<prefill_block>(m.what) || m.body.empty()) return;
    const auto bytes = m.body.bytes();
    std::vector<std::byte> changed{bytes.begin(), bytes.end()};
    changed[random_.below(changed.size())] ^= std::byte{1} << random_.below(8);
    m.body = payload{std::move(changed)};
    ++corrupted;
  }
  void deliver(under_way& m) {
    if (m.what.to == decoder_of_guests) return to_decoder(m.from, m.what);
    if (m.what.to == dc1) {
      REQUIRE(std::holds_alternative<prefill_progress>(m.what.what));
      return sent.push_back({dc1, std::move(m.what.what), {}, 0, now_s});
    }
    const auto guest = static_cast<std::uint32_t>(m.what.to - first_guest_node);
    REQUIRE(guest < guests_.size());
    receive(guest, m.from, m.what.what, m.what.body);
  }
  void to_decoder(address from, const guest_prompts::outgoing& m) {
    const auto* b = std::get_if<prefill_block>(&m.what);
    REQUIRE(b);
    const auto at = decoders.find(b->name.number);
    if (at == decoders.end()) return post(decoder_of_guests, {from, not_needed(*b), {}});
    auto& d = at->second;
    const auto fresh = d.from[b->guest].accept(*b, m.body, b->bytes);
    if (how_.corruption > 0 && !fresh) return;  // its sender misses the answer
    REQUIRE(fresh);
    if (*fresh && b->what == prefill_block::kind::cache) {
      const auto layer_bytes = m.body.bytes().size() / b->layers;
      for (std::uint32_t i = 0; i < b->layers; ++i) {
        const std::pair page{b->first_layer + i, b->first};
        CHECK_FALSE(d.pages.contains(page));
        d.pages[page] = {m.body.owner(), m.body.bytes().subspan(i * layer_bytes, layer_bytes)};
        d.counts[page] = b->count;
      }
    } else if (*fresh) {
      CHECK_FALSE(d.last);
      d.last = m.body;
    }
    post(decoder_of_guests, {from, d.from[b->guest].state(), {}});
  }

  how how_;
  random_source random_;
  std::vector<member> guests_;
  std::deque<std::pair<std::uint32_t, guest_tile_result>> results_;
  std::multimap<double, under_way> network_;
};

/// A group of that many guests of a model of 8 layers.
inline guest_group group_of(std::uint32_t guests) {
  guest_group g;
  for (std::uint32_t i = 0; i < guests; ++i) {
    guest_place p;
    p.first_layer = 8 * i / guests;
    p.layers = 8 * (i + 1) / guests - p.first_layer;
    p.token_s = 1e-6;
    p.pair_s = 1e-10;
    p.half_tokens = 128;
    g.guests.push_back(p);
  }
  return g;
}

inline bubble_lending lending_of_eight() {
  bubble_lending how;
  auto& m = how.model.shape;
  m.name = "m";
  m.family = "llama";
  m.layers = 8;
  m.hidden = 256;
  m.heads = 8;
  m.kv_heads = 2;
  m.vocabulary = 1000;
  m.sequence = 4096;
  how.op_ms = 0.1;
  return how;
}

}  // namespace troupe::actors::tests
