#pragma once

#include <map>
#include <set>
#include <span>

#include "actors/actor_fixture.hpp"
#include "actors/serving/decoder/batch_thread.hpp"
#include "actors/serving/decoder/block_receiver.hpp"
#include "actors/serving/decoder/decoder.hpp"
#include "gpu/inference/generate.hpp"
#include "gpu/inference/small_inference_model.hpp"

// A decoder whose fronts, prefill controller and guests are the test itself.

namespace troupe::actors::tests {

inline constexpr address decoder_node = a0, guest_node = a1, second_guest_node = b0,
                         front_of_decoder = front_address(0), second_front = front_address(1);
inline constexpr lease_id lease_of_decoder = 7;

/// A part of the small model, or all of it.
inline std::unique_ptr<gpu::inference_device> served_device(std::uint32_t pages,
                                                            std::uint32_t first_layer = 0,
                                                            std::uint32_t layers = 2) {
  auto spec = gpu::whole_model(test::small_inference_model(), pages);
  spec.seed = 7;
  spec.first_sublayer = 2 * first_layer;
  spec.sublayers = 2 * layers;
  spec.embeds = first_layer == 0;
  spec.predicts = layers == 2;
  auto d = gpu::make_cpu_inference_device(spec);
  REQUIRE(d);
  return std::move(*d);
}

/// Executes rounds at once, or when the test calls for them.
class executor_by_hand final : public batch_executor {
 public:
  explicit executor_by_hand(std::uint32_t pages) : device{served_device(pages)} {}

  void open(std::function<void(expected<decoder_model>)> done) override { done(model_of(*device)); }
  void execute(gpu::batch_round r,
               std::function<void(expected<std::vector<gpu::batch_result>>)> done) override {
    REQUIRE_FALSE(done_);
    rounds.push_back(std::move(r));
    done_ = std::move(done);
    if (!holds) finish();
  }
  /// Executes the round that it has.
  void finish() {
    REQUIRE(done_);
    const auto done = std::exchange(done_, nullptr);
    if (lost) return done(refuse(*lost));
    std::vector<gpu::batch_result> results;
    gpu::execute(*device, rounds.back(),
                 [&](gpu::batch_result x) { results.push_back(std::move(x)); });
    done(std::move(results));
  }
  bool busy() const { return done_ != nullptr; }
  /// Pages of the device that no sequence has, those with the beginning of a prompt among them.
  std::uint32_t unused_pages() const {
    std::set<gpu::page_name> named;
    for (const auto& r : rounds) {
      for (const auto& k : r.keep) named.insert(k.name);
      for (const auto p : r.drop) named.erase(p);
    }
    return device->free_pages() + static_cast<std::uint32_t>(named.size());
  }

  std::unique_ptr<gpu::inference_device> device;
  bool holds = false;
  std::optional<reason> lost;
  std::vector<gpu::batch_round> rounds;

 private:
  std::function<void(expected<std::vector<gpu::batch_result>>)> done_;
};

/// A request, and its body.
struct asked_for {
  generate what;
  std::vector<std::uint32_t> prompt, known;

  payload body() const {
    auto all = prompt;
    all.insert(all.end(), known.begin(), known.end());
    const auto bytes = std::as_bytes(std::span{all});
    return payload{std::vector<std::byte>{bytes.begin(), bytes.end()}};
  }
};

/// Different prompts, lengths and ways to choose tokens.
inline asked_for asked(std::uint32_t i, std::uint32_t max_tokens = 0) {
  asked_for a;
  constexpr std::uint32_t lengths[] = {1, 63, 64, 65, 127, 200, 5, 30};
  for (std::uint32_t k = 0; k < lengths[i % 8]; ++k) a.prompt.push_back((i * 31 + k * 7) % 256);
  a.what.name = {front_of_decoder, 1, i + 1, 1};
  a.what.lease = lease_of_decoder;
  auto& w = a.what.what;
  w.prompt_tokens = static_cast<std::uint32_t>(a.prompt.size());
  w.max_tokens = max_tokens > 0 ? max_tokens : 1 + i * 5 % 40;
  w.how.temperature = i % 3 == 0 ? 0.0 : 0.9;
  w.how.top_p = 0.95;
  w.how.seed = i;
  return a;
}

/// The completion of a request by gpu::generate, on a device of its own.
struct made_alone {
  std::vector<std::uint32_t> tokens;
  std::vector<double> log_probabilities;
  bool operator==(const made_alone&) const = default;
};
inline made_alone alone(const asked_for& a) {
  const auto d = served_device(5);
  gpu::generation g;
  g.what = a.what.what;
  g.prompt = a.prompt;
  gpu::completion out{g.what, {}, nullptr};
  REQUIRE(gpu::generate(*d, g, out));
  return {out.tokens(), out.log_probabilities()};
}

/// A block of a guest, as it is sent.
struct made_block {
  address from = guest_node;
  prefill_block header;
  payload body;
};

/// The blocks that guests, to which the model's layers are dealt out at `cuts`, make of a prompt.
inline std::vector<made_block> blocks_of(const std::vector<std::uint32_t>& prompt,
                                         const prefill_name& name, std::uint32_t guests) {
  const auto m = test::small_inference_model();
  const auto pages = gpu::pages_for(static_cast<std::uint32_t>(prompt.size()));
  const auto each = m.layers / guests;
  payload hidden{nullptr, std::as_bytes(std::span{prompt})};
  std::vector<made_block> all;
  for (std::uint32_t g = 0; g < guests; ++g) {
    const auto d = served_device(pages, g * each, each);
    REQUIRE(d->reserve(1, static_cast<std::uint32_t>(prompt.size())));
    const auto work = d->prefill(1, 0, hidden);
    REQUIRE(work);
    hidden = gpu::finish(**work);
    std::vector<made_block> own;
    for (std::uint32_t l = g * each; l < (g + 1) * each; ++l)
      for (std::uint32_t p = 0; p < pages; ++p) {
        made_block b;
        b.header.what = prefill_block::kind::cache;
        b.header.first_layer = l;
        b.header.first = p;
        b.header.layers = b.header.count = 1;
        b.body = *d->take_kv(1, l, 1, p, 1);
        own.push_back(b);
      }
    if (g + 1 == guests) {
      made_block b;
      b.header.what = prefill_block::kind::last;
      b.header.first = static_cast<std::uint32_t>(prompt.size()) - 1;
      b.header.count = 1;
      b.body = {hidden.owner(), hidden.bytes().last(m.hidden * sizeof(float))};
      own.push_back(b);
    }
    for (std::uint32_t i = 0; i < own.size(); ++i) {
      auto& b = own[i];
      b.from = g == 0 ? guest_node : second_guest_node;
      b.header.name = name;
      b.header.guest = g;
      b.header.index = i;
      b.header.blocks = static_cast<std::uint32_t>(own.size());
      b.header.bytes = b.body.bytes().size();
      b.header.hash = block_hash(b.body);
      b.header.progress.name = name;
      b.header.progress.guest = g;
      all.push_back(b);
    }
    all.back().header.progress.now = prefill_progress::state::ended;
    all.back().header.progress.ended_ago_s = 0.25;
    all.back().header.progress.yields = 2;
    all.back().header.progress.hidden_bytes = 1000 * g;
  }
  return all;
}

class decoder_fixture : public actor_fixture {
 public:
  struct how {
    std::uint32_t pages = 30;
    bool bubbles = false, fallback = true;
    std::uint32_t max_sequences = 256;
    bool simulated = false;
    double start_s = 0;
    const char* adapter = nullptr;  // of a simulated one
  };

  decoder_fixture() : decoder_fixture{how{}} {}
  explicit decoder_fixture(how it) : actor_fixture{*cluster_with_fronts()} {
    decoder_options o;
    o.cluster = cluster_with_fronts();
    o.lease = lease_of_decoder;
    o.what.model.name = "small";
    o.what.model.shape = harness::gpt2();
    o.what.bubbles = it.bubbles;
    o.what.fallback = it.fallback;
    o.what.max_sequences = it.max_sequences;
    o.start_s = it.start_s;
    if (it.adapter) o.what.adapters = std::vector<served_adapter>{{it.adapter, "/adapters", 0}};
    if (!it.simulated) o.executor = device = std::make_shared<executor_by_hand>(it.pages);
    start<decoder_behavior>(decoder_node, std::move(o));
  }

  void ask(const asked_for& a) { receive(a.what.name.front, a.what, a.body()); }
  void cancel(const request_name& n) { receive(n.front, cancel_generate{n, lease_of_decoder}); }
  void received(const request_name& n, std::uint32_t tokens, bool finished = false) {
    receive(n.front, generated_ack{n, lease_of_decoder, tokens, finished});
  }
  void promise(const prefill_name& n, std::uint32_t guests, double promised_s = 1) {
    prefill_reply r;
    r.name = n;
    r.promised_s = promised_s;
    r.guests = {guest_node};
    if (guests == 2) r.guests.push_back(second_guest_node);
    receive(dc1, r);
  }
  void decline(const prefill_name& n, const std::string& why = "no_bubble_before_deadline") {
    prefill_reply r;
    r.name = n;
    r.declined = {reason::kind::insufficient, why};
    receive(dc1, r);
  }
  void block(const made_block& b) { receive(b.from, b.header, b.body); }
  decoder_state state() {
    take<decoder_state>();
    advance(0.3);  // a quarter of a heartbeat
    return last<decoder_state>(front_of_decoder);
  }

  /// The statements about one completion, put together.
  struct notified {
    made_alone made;
    generated::ending finish = generated::ending::none;
    reason why;
    std::optional<prefill_place> where;
    std::uint32_t statements = 0;
  };
  /// Takes all statements, in order; each must go on where those before it end, or repeat.
  std::map<request_name, notified>& listen() {
    for (const auto& g : take<generated>()) {
      auto& t = notified_[g.name];
      ++t.statements;
      const auto known = known_[g.name];
      const auto has = known + static_cast<std::uint32_t>(t.made.tokens.size());
      CHECK(g.first <= has);
      for (std::size_t i = 0; i < g.tokens.size(); ++i) {
        const auto& chosen = g.tokens[i].chosen;
        const auto at = g.first + i - known;
        if (at < t.made.tokens.size()) {
          CHECK(t.made.tokens[at] == chosen.token);
          continue;
        }
        CHECK(t.finish == generated::ending::none);
        t.made.tokens.push_back(chosen.token);
        t.made.log_probabilities.push_back(chosen.log_probability);
      }
      if (g.where) t.where = g.where;
      if (g.finish == generated::ending::none) continue;
      CHECK((t.finish == generated::ending::none || t.finish == g.finish));
      t.finish = g.finish;
      t.why = g.why;
    }
    return notified_;
  }
  /// Sets the number of tokens that an attempt begins with; called before listen().
  void knows(const request_name& n, std::uint32_t tokens) { known_[n] = tokens; }
  notified& notified_of(const request_name& n) { return listen()[n]; }

  std::shared_ptr<executor_by_hand> device;

 private:
  std::map<request_name, notified> notified_;
  std::map<request_name, std::uint32_t> known_;
};

}  // namespace troupe::actors::tests
