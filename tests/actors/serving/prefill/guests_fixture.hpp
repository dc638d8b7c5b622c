#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/serving/prefill/guest_engine.hpp"
#include "actors/serving/prefill/guest_prompts.hpp"
#include "messages/base/random.hpp"
#include "messages/base/time.hpp"

// The guests of a group, whose gateway, decoder, network, devices and clock are the test itself.

namespace troupe::actors::tests {

inline constexpr address gateway_of_guests = 1, decoder_node = 90, first_guest_node = 10;

/// The blocks of one prompt that a decoder has received.
struct decoder_by_hand {
  explicit decoder_by_hand(prefill_name n, std::size_t guests, bool simulated) {
    for (std::uint32_t g = 0; g < guests; ++g) from.emplace_back(n, g, false, simulated);
  }
  bool whole() const {
    return std::ranges::all_of(from, [](const auto& r) { return r.whole(); });
  }

  std::vector<block_receiver> from;                                  // by guest
  std::map<std::pair<std::uint32_t, std::uint32_t>, payload> pages;  // by layer and first page
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> counts;  // pages of each
  std::optional<payload> last;
};

class guests_by_hand {
 public:
  struct how {
    double loss = 0, latency_s = 0.001;
    std::uint64_t seed = 1;
    bool ordered = true;    // the network keeps the order of messages
    double corruption = 0;  // share of blocks of which a bit is changed on the way
  };
  using maker = std::function<std::shared_ptr<guest_engine>(guest_shape&, guest_engine::listener)>;

  guests_by_hand(guest_group g, bubble_lending lending) : guests_by_hand{g, lending, how{}, {}} {}
  guests_by_hand(guest_group g, const bubble_lending& lending, how h, const maker& make)
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
      auto& g_i = guests_.emplace_back();
      g_i.engine = make ? make(*shape, listener)
                        : std::make_shared<simulated_guest>([this] { return now_s; }, listener);
      simulated = shape->simulated;
      g_i.prompts = std::make_unique<guest_prompts>(*shape);
    }
  }

  prefill_order order_of(std::uint64_t number, std::uint32_t tokens, std::uint32_t guest) const {
    prefill_order o;
    o.name = {decoder_node, 3, number};
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
    decoders.try_emplace(number, prefill_name{decoder_node, 3, number}, guests_.size(), simulated);
  }
  void give(std::uint32_t guest, const prefill_order& o, const payload& body = {},
            const reason& refusal = {}) {
    guest_prompts::changes c;
    prompts(guest).on_order(gateway_of_guests, o, body, refusal, now_s, c);
    carry_out(guest, std::move(c));
  }
  void cancel(std::uint64_t number) {
    for (std::uint32_t g = 0; g < guests_.size(); ++g) {
      guest_prompts::changes c;
      prompts(g).on_cancel(gateway_of_guests, {decoder_node, 3, number}, c);
      carry_out(g, std::move(c));
    }
  }
  void receive(std::uint32_t guest, address from, const message& m, const payload& body = {}) {
    guest_prompts::changes c;
    auto& p = prompts(guest);
    if (const auto* b = std::get_if<prefill_block>(&m)) p.on_block(from, *b, body, c);
    if (const auto* r = std::get_if<blocks_received>(&m)) p.on_received(from, *r, now_s, c);
    carry_out(guest, std::move(c));
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
        ++g.steps;
      }
      settle();
      if (!any && network_.empty() && !pending()) return;
      if (!any) wait();
    }
  }
  /// Delivers what has arrived.
  void settle() {
    for (;;) {
      while (!results_.empty()) {
        auto [guest, r] = std::move(results_.front());
        results_.pop_front();
        if (r.why.text.empty()) ++tiles;
        guest_prompts::changes c;
        prompts(guest).on_result(std::move(r), now_s, c);
        carry_out(guest, std::move(c));
      }
      if (network_.empty() || network_.begin()->first > now_s) return;
      auto next = std::move(network_.begin()->second);
      network_.erase(network_.begin());
      deliver(next);
    }
  }
  /// Until the next message or timer.
  void wait() {
    double at_s = network_.empty() ? never : network_.begin()->first;
    for (const auto& g : guests_) at_s = std::min(at_s, g.prompts->next_s());
    REQUIRE(at_s < never);
    now_s = std::max(now_s, at_s);
    for (std::uint32_t g = 0; g < guests_.size(); ++g) {
      guest_prompts::changes c;
      prompts(g).on_time(now_s, c);
      carry_out(g, std::move(c));
    }
    settle();
  }
  bool pending() const {
    return std::ranges::any_of(guests_, [](const auto& g) { return g.prompts->held() > 0; });
  }

  guest_prompts& prompts(std::uint32_t guest) { return *guests_[guest].prompts; }
  guest_engine& engine(std::uint32_t guest) { return *guests_[guest].engine; }
  std::size_t steps(std::uint32_t guest) const { return guests_[guest].steps; }
  /// The messages that the gateway has received since the last call.
  std::vector<prefill_progress> take_progress() { return std::exchange(progress_, {}); }

  guest_group group;
  double now_s = 100;
  bool simulated = true;
  std::map<std::uint64_t, decoder_by_hand> decoders;  // by number
  std::size_t lost = 0, tiles = 0, corrupted = 0;

 private:
  struct one {
    std::shared_ptr<guest_engine> engine;
    std::unique_ptr<guest_prompts> prompts;
    std::size_t steps = 0;
  };
  struct under_way {
    address from = 0;
    guest_prompts::outgoing what;
  };

  void carry_out(std::uint32_t guest, guest_prompts::changes c) {
    for (const auto& n : c.forget) guests_[guest].engine->forget(n);
    for (auto& t : c.compute) guests_[guest].engine->add(std::move(t));
    for (auto& m : c.send) post(first_guest_node + guest, std::move(m));
  }
  void post(address from, guest_prompts::outgoing m) {
    if (random_.chance(how_.loss)) return void(++lost);
    if (how_.corruption > 0 && random_.chance(how_.corruption)) corrupt(m);
    const double extra_s = how_.ordered ? 0 : 0.1 * random_.uniform();
    network_.emplace(now_s + how_.latency_s + extra_s, under_way{from, std::move(m)});
  }
  void corrupt(guest_prompts::outgoing& m) {
    if (!std::holds_alternative<prefill_block>(m.what) || m.body.empty()) return;
    const auto sent = m.body.bytes();
    std::vector<std::byte> changed{sent.begin(), sent.end()};
    changed[random_.below(changed.size())] ^= std::byte{1} << random_.below(8);
    m.body = payload{std::move(changed)};
    ++corrupted;
  }
  void deliver(const under_way& m) {
    if (m.what.to == gateway_of_guests) {
      const auto* p = std::get_if<prefill_progress>(&m.what.what);
      REQUIRE(p);
      progress_.push_back(*p);
    } else if (m.what.to == decoder_node) {
      to_decoder(m.from, m.what);
    } else {
      const auto guest = static_cast<std::uint32_t>(m.what.to - first_guest_node);
      REQUIRE(guest < guests_.size());
      receive(guest, m.from, m.what.what, m.what.body);
    }
  }
  void to_decoder(address from, const guest_prompts::outgoing& m) {
    const auto* b = std::get_if<prefill_block>(&m.what);
    REQUIRE(b);
    const auto at = decoders.find(b->name.number);
    if (at == decoders.end()) return post(decoder_node, {from, not_needed(*b), {}});
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
    post(decoder_node, {from, d.from[b->guest].state(), {}});
  }

  how how_;
  random_source random_;
  std::vector<one> guests_;
  std::deque<std::pair<std::uint32_t, guest_tile_result>> results_;
  std::multimap<double, under_way> network_;
  std::vector<prefill_progress> progress_;
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
