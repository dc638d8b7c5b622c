#include <cstring>

#include "actors/serving/decoder/decoder_fixture.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using Catch::Contains;

// A decoder that has prompts computed in bubbles: the test is the prefill controller and the
// guests.

using ending = generated::ending;

namespace {

constexpr decoder_fixture::how with_bubbles{.bubbles = true};

/// Asks, and returns the name of the prefill that the decoder requests.
prefill_name begin(decoder_fixture& d, const asked_for& a) {
  d.ask(a);
  const auto p = d.last<prefill_request>(dc1);
  CHECK(p.tokens == a.what.what.prompt_tokens);
  return p.name;
}

bool generates(decoder_fixture& d, const asked_for& a) {
  d.advance(0.05);
  return !d.notified_of(a.what.name).made.tokens.empty();
}

/// The prefills that it has requested, with the tokens of their prompts.
std::vector<std::pair<prefill_request, std::vector<std::uint32_t>>> requested(decoder_fixture& d) {
  std::vector<std::pair<prefill_request, std::vector<std::uint32_t>>> all;
  for (const auto& m : d.sent) {
    const auto* p = std::get_if<prefill_request>(&m.what);
    if (!p) continue;
    std::vector<std::uint32_t> prompt(p->tokens);
    REQUIRE(m.body.bytes().size() == prompt.size() * sizeof(std::uint32_t));
    std::memcpy(prompt.data(), m.body.bytes().data(), m.body.bytes().size());
    all.emplace_back(*p, std::move(prompt));
  }
  d.take<prefill_request>();
  return all;
}

}  // namespace

TEST_CASE("tokens after a prefill in bubbles are those of the model alone, bit for bit",
          "[decoder]") {
  for (const std::uint32_t guests : {1u, 2u})
    for (const std::uint32_t i : {0u, 1u, 2u, 3u, 4u, 5u}) {
      INFO(guests << " guests, request " << i);
      decoder_fixture d{with_bubbles};
      const auto a = asked(i);
      auto other = asked(6, 60);  // in company
      other.what.name.number = 99;
      const auto its_name = begin(d, other);
      d.decline(its_name);
      const auto name = begin(d, a);
      d.promise(name, guests);
      auto blocks = blocks_of(a.prompt, name, guests);
      random_source random{i};
      for (std::size_t k = blocks.size(); k > 1; --k)
        std::swap(blocks[k - 1], blocks[random.below(k)]);
      for (const auto& b : blocks) {
        d.block(b);
        if (random.chance(0.3)) d.block(b);
      }
      d.advance(0.1);
      const auto& t = d.notified_of(a.what.name);
      CHECK(t.made == alone(a));
      CHECK(t.finish == ending::length);
      REQUIRE(t.where);
      CHECK(t.where->bubbles);
      CHECK(t.where->guests == guests);
      CHECK(t.where->promised_s == 1);
      CHECK(t.where->yields == 2 * guests);
      CHECK(t.where->kv_bytes > 0);
      CHECK(t.where->hidden_bytes == (guests == 2 ? 1000 : 0));
      CHECK(d.listen()[other.what.name].made == alone(other));
      CHECK_FALSE(d.listen()[other.what.name].where->bubbles);
      // The decoder itself has computed only the other's prompt.
      for (const auto& r : d.device->rounds)
        for (const auto& c : r.prefill) CHECK(c.tokens == other.prompt);
    }
}

TEST_CASE("a decoder begins with the last block of a prefill in bubbles, not before", "[decoder]") {
  const auto a = asked(4, 5);
  for (std::size_t missing = 0; missing < 5; ++missing) {
    decoder_fixture d{with_bubbles};
    const auto name = begin(d, a);
    d.promise(name, 2);
    const auto blocks = blocks_of(a.prompt, name, 2);
    REQUIRE(blocks.size() == 5);
    for (std::size_t k = 0; k < blocks.size(); ++k)
      if (k != missing) d.block(blocks[k]);
    CHECK_FALSE(generates(d, a));
    d.take<blocks_received>();
    d.block(blocks[missing]);
    CHECK(d.last<blocks_received>(blocks[missing].from).whole);
    CHECK(d.last<cancel_prefill>(dc1).name == name);
    CHECK(generates(d, a));
    CHECK(d.notified_of(a.what.name).made == alone(a));
  }
}

TEST_CASE("known tokens follow a prefill in bubbles with the same bits", "[decoder]") {
  const auto whole = alone(asked(4, 20));
  auto a = asked(4, 20);
  a.what.replay = 7;
  a.known.assign(whole.tokens.begin(), whole.tokens.begin() + 7);
  decoder_fixture d{with_bubbles};
  d.knows(a.what.name, 7);
  const auto name = begin(d, a);
  d.promise(name, 1);
  for (const auto& b : blocks_of(a.prompt, name, 1)) d.block(b);
  d.advance(0.1);
  const auto& t = d.notified_of(a.what.name);
  CHECK(t.made.tokens == std::vector<std::uint32_t>{whole.tokens.begin() + 7, whole.tokens.end()});
  CHECK(t.made.log_probabilities ==
        std::vector<double>{whole.log_probabilities.begin() + 7, whole.log_probabilities.end()});
}

TEST_CASE("a decoder rejects corrupted blocks and blocks that its guests did not send",
          "[decoder]") {
  decoder_fixture d{with_bubbles};
  const auto a = asked(4, 5);
  const auto name = begin(d, a);
  const auto blocks = blocks_of(a.prompt, name, 2);
  d.block(blocks[0]);  // before the promise: not answered, so that it is sent again
  CHECK(d.take<blocks_received>().empty());
  d.promise(name, 2);
  const auto refused = [&](made_block b) {
    d.block(b);
    return d.take<blocks_received>().empty();
  };
  auto b = blocks[0];
  b.from = second_guest_node;
  CHECK(refused(b));
  b = blocks[0];
  b.header.guest = 2;
  CHECK(refused(b));
  b = blocks[0];
  b.header.first_layer = 2;
  CHECK(refused(b));
  b = blocks[0];
  b.header.first = 2;
  CHECK(refused(b));
  b = blocks[0];
  b.header.layers = 0xffffffff;
  CHECK(refused(b));
  b = blocks[0];
  b.body = blocks[1].body;
  CHECK(refused(b));
  b = blocks[0];
  b.body = {};
  b.header.hash = 0;
  CHECK(refused(b));
  b = blocks[4];
  b.from = guest_node;
  b.header.guest = 0;
  CHECK(refused(b));  // the last hidden state is the last guest's
  for (const auto& good : blocks) CHECK_FALSE(refused(good));
  d.advance(0.1);
  CHECK(d.notified_of(a.what.name).made == alone(a));
}

TEST_CASE("blocks of another prefill are not needed, and do not reach the cache", "[decoder]") {
  decoder_fixture d{with_bubbles};
  auto a = asked(4, 5);
  const auto old = begin(d, a);
  d.promise(old, 1);
  const auto blocks = blocks_of(a.prompt, old, 1);
  for (std::size_t k = 0; k + 1 < blocks.size(); ++k) d.block(blocks[k]);
  a.what.name.attempt = 2;
  const auto name = begin(d, a);
  CHECK(name.number != old.number);
  d.promise(name, 1);
  d.take<blocks_received>();
  d.block(blocks.back());
  CHECK(d.last<blocks_received>().whole);
  CHECK_FALSE(generates(d, a));
  // Nor do they count with the new one's.
  const auto fresh = blocks_of(a.prompt, name, 1);
  for (std::size_t k = 1; k < fresh.size(); ++k) d.block(fresh[k]);
  d.block(blocks[0]);
  CHECK_FALSE(generates(d, a));
  d.block(fresh[0]);
  CHECK(generates(d, a));
  CHECK(d.notified_of(a.what.name).made == alone(a));
}

TEST_CASE("guests that contradict each other have the decoder prefill by itself", "[decoder]") {
  const auto a = asked(4, 5);
  SECTION("two have the same page") {
    decoder_fixture d{with_bubbles};
    const auto name = begin(d, a);
    d.promise(name, 1);
    auto blocks = blocks_of(a.prompt, name, 1);
    blocks[1].header.first = 0;
    for (const auto& b : blocks) d.block(b);
    d.advance(0.1);
    CHECK(d.notified_of(a.what.name).made == alone(a));
    CHECK_THAT(d.listen()[a.what.name].where->declined.text, Contains("page 0 of layer 0"));
  }
  SECTION("a page is missing") {
    decoder_fixture d{with_bubbles};
    const auto name = begin(d, a);
    d.promise(name, 1);
    auto blocks = blocks_of(a.prompt, name, 1);
    std::swap(blocks[3], blocks.back());
    blocks.pop_back();
    for (std::uint32_t k = 0; k < blocks.size(); ++k) {
      blocks[k].header.index = k;
      blocks[k].header.blocks = static_cast<std::uint32_t>(blocks.size());
      d.block(blocks[k]);
    }
    d.advance(0.1);
    CHECK(d.notified_of(a.what.name).made == alone(a));
    CHECK_FALSE(d.listen()[a.what.name].where->bubbles);
  }
}

TEST_CASE("a declined prefill is the decoder's own, or the request is declined", "[decoder]") {
  const auto a = asked(4, 5);
  decoder_fixture d{with_bubbles};
  d.decline(begin(d, a));
  d.advance(0.1);
  const auto& t = d.notified_of(a.what.name);
  CHECK(t.made == alone(a));
  REQUIRE(t.where);
  CHECK_FALSE(t.where->bubbles);
  CHECK(t.where->declined.text == "no_bubble_before_deadline");

  decoder_fixture strict{{.bubbles = true, .fallback = false}};
  strict.decline(begin(strict, a));
  const auto no = strict.notified_of(a.what.name);
  CHECK(no.finish == ending::failed);
  CHECK(no.why.text == "no_bubble_before_deadline");
  CHECK(strict.state().free_pages == 30);
}

TEST_CASE("a prefill request is repeated until it is answered, but not for long", "[decoder]") {
  const auto a = asked(4, 5);
  decoder_fixture d{with_bubbles};
  const auto name = begin(d, a);
  d.advance(0.35);
  const auto again = d.take<prefill_request>();
  CHECK(again.size() == 3);
  for (const auto& p : again) CHECK(p.name == name);
  CHECK(again[2].within_s < again[0].within_s);
  CHECK_FALSE(generates(d, a));
  d.advance(0.2);
  CHECK(generates(d, a));
  CHECK_THAT(d.notified_of(a.what.name).where->declined.text, Contains("does not answer"));
  // The decoder repeats to the controller that no prompt waits, until that acknowledges it.
  d.take<cancel_prefill>();
  d.advance(1);
  CHECK(d.take<cancel_prefill>().size() == 4);
  prefill_progress gone;
  gone.name = name;
  gone.now = prefill_progress::state::gone;
  d.receive(dc1, gone);
  d.advance(1);
  CHECK(d.take<cancel_prefill>().empty());
  d.promise(name, 1);  // late
  d.advance(0.1);
  CHECK(d.notified_of(a.what.name).made == alone(a));
}

TEST_CASE("a prefill that is not whole by twice its promise and a second is given up",
          "[decoder]") {
  const auto a = asked(4, 5);
  decoder_fixture d{with_bubbles};
  const auto name = begin(d, a);
  d.promise(name, 1, 0.5);
  const auto blocks = blocks_of(a.prompt, name, 1);
  for (std::size_t k = 0; k + 1 < blocks.size(); ++k) d.block(blocks[k]);
  d.advance(1.9);
  CHECK_FALSE(generates(d, a));
  d.advance(0.2);
  CHECK(generates(d, a));
  const auto& t = d.notified_of(a.what.name);
  CHECK(t.made == alone(a));
  CHECK_FALSE(t.where->bubbles);
  CHECK_THAT(t.where->declined.text, Contains("incomplete"));
  CHECK(d.last<cancel_prefill>().name == name);
  d.block(blocks.back());  // late
  CHECK(d.last<blocks_received>().whole);
}

TEST_CASE("a prefill that its controller has given up is given up at once", "[decoder]") {
  const auto a = asked(4, 5);
  decoder_fixture d{with_bubbles};
  prefill_progress gone;
  gone.name = begin(d, a);
  d.promise(gone.name, 1);
  gone.now = prefill_progress::state::gone;
  gone.why = {reason::kind::unavailable, "the training has ended"};
  d.receive(dc1, gone);
  CHECK(generates(d, a));
  CHECK(d.notified_of(a.what.name).where->declined.text == "the training has ended");
}

TEST_CASE("a cancelled request's prefill in bubbles is cancelled, and its pages are free",
          "[decoder]") {
  const auto a = asked(4, 5);
  decoder_fixture d{with_bubbles};
  const auto name = begin(d, a);
  d.promise(name, 1);
  const auto blocks = blocks_of(a.prompt, name, 1);
  d.block(blocks[0]);
  d.cancel(a.what.name);
  CHECK(d.last<cancel_prefill>(dc1).name == name);
  CHECK(d.state().free_pages == 30);
  CHECK(d.device->unused_pages() == 30);
  d.take<blocks_received>();
  d.block(blocks[1]);
  CHECK(d.last<blocks_received>().whole);
}

TEST_CASE("prompts in bubbles over a bad network have the right tokens, and one outcome each",
          "[decoder]") {
  constexpr std::uint32_t count = 12;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    random_source random{seed};
    decoder_fixture d{{.pages = 20, .bubbles = true}};
    std::map<std::uint64_t, std::vector<made_block>> sending;  // by prefill
    std::map<request_name, std::uint32_t> has;
    for (std::uint32_t step = 0; step < 4000; ++step) {
      if (step < count) d.ask(asked(step));
      if (random.chance(0.05)) d.ask(asked(static_cast<std::uint32_t>(random.below(count))));
      for (const auto& [p, prompt] : requested(d)) {
        if (random.chance(0.3)) continue;
        if (random.chance(0.1)) d.decline(p.name);
        const auto guests = static_cast<std::uint32_t>(1 + p.name.number % 2);
        d.promise(p.name, guests);
        if (!sending.count(p.name.number))
          sending[p.name.number] = blocks_of(prompt, p.name, guests);
      }
      for (auto& [number, blocks] : sending) {
        if (blocks.empty()) continue;
        const auto k = random.below(blocks.size());
        if (random.chance(0.3)) d.block(blocks[k]);
        if (random.chance(0.3)) std::swap(blocks[k], blocks.back());
      }
      for (const auto& [name, t] : d.listen())
        if (random.chance(0.1))
          d.received(name, static_cast<std::uint32_t>(t.made.tokens.size()),
                     t.finish != ending::none);
      d.advance(0.004);
    }
    auto& notified = d.listen();
    std::uint32_t in_bubbles = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      INFO("seed " << seed << ", request " << i);
      const auto& t = notified[asked(i).what.name];
      CHECK(t.finish == ending::length);
      CHECK(t.made == alone(asked(i)));
      in_bubbles += t.where && t.where->bubbles;
    }
    CHECK(in_bubbles > 0);
    CHECK(d.state().free_pages == 20);
  }
}

TEST_CASE("a decoder prefills a prompt itself if it has half of it cached, and says so",
          "[decoder]") {
  decoder_fixture d{with_bubbles};
  const auto first = asked(5, 4);
  REQUIRE(first.prompt.size() == 200);
  d.decline(begin(d, first));
  d.advance(0.1);
  CHECK(d.notified_of(first.what.name).made == alone(first));
  d.received(first.what.name, 4, true);
  // Two pages of its four, and one of them.
  const auto from = [&](std::size_t same, std::uint64_t number) {
    auto a = first;
    a.what.name.number = number;
    for (auto i = same; i < a.prompt.size(); ++i) a.prompt[i] = (a.prompt[i] + 1) % 256;
    return a;
  };
  const auto half = from(130, 98), less = from(70, 99);
  const auto rounds = d.device->rounds.size();
  d.ask(half);
  d.advance(0.1);
  CHECK(d.take<prefill_request>().empty());
  const auto& known = d.notified_of(half.what.name);
  CHECK(known.made == alone(half));
  REQUIRE(known.where);
  CHECK_FALSE(known.where->bubbles);
  CHECK(known.where->declined.text == "prompt_in_cache");
  CHECK(known.where->cached == 128u);
  std::size_t computed = 0;
  for (auto i = rounds; i < d.device->rounds.size(); ++i)
    for (const auto& c : d.device->rounds[i].prefill) computed += c.tokens.size();
  CHECK(computed == 200 - 128);
  d.decline(begin(d, less));
  d.advance(0.1);
  CHECK(d.notified_of(less.what.name).made == alone(less));
  CHECK(d.listen()[less.what.name].where->declined.text == "no_bubble_before_deadline");
  CHECK(d.listen()[less.what.name].where->cached == 64u);
  CHECK_FALSE(d.listen()[first.what.name].where->cached);
  d.cancel(half.what.name);
  d.cancel(less.what.name);
  const auto s = d.state();
  CHECK(s.computed_prompt == 200u + 72 + 136);
  CHECK(s.cached_prompt == 128u + 64);
  CHECK(s.cached_pages == 3u + 1 + 2);
  CHECK_FALSE(s.set_back);
}

TEST_CASE("a request that is set back for lack of pages is computed again with the same tokens",
          "[decoder]") {
  // Each needs three pages in the end.
  decoder_fixture d{{.pages = 4, .bubbles = true}};
  const auto older = asked(1, 100), younger = asked(2, 100);
  d.device->holds = true;
  d.decline(begin(d, older));
  const auto name = begin(d, younger);
  d.promise(name, 2);
  for (const auto& b : blocks_of(younger.prompt, name, 2)) d.block(b);
  d.device->holds = false;
  d.device->finish();
  d.advance(0.1);
  for (const auto& a : {older, younger}) {
    INFO("request " << a.what.name.number);
    CHECK(d.notified_of(a.what.name).finish == ending::length);
    CHECK(d.listen()[a.what.name].made == alone(a));
  }
  CHECK(d.listen()[younger.what.name].where->bubbles);
  // Bubbles have computed it first, and then the decoder.
  std::size_t again = 0;
  for (const auto& r : d.device->rounds)
    for (const auto& c : r.prefill) again += c.tokens == younger.prompt;
  CHECK(again == 1);
  d.received(older.what.name, 100, true);
  d.received(younger.what.name, 100, true);
  const auto s = d.state();
  CHECK(s.free_pages == 4);
  CHECK(s.set_back == 1u);
}

TEST_CASE("a request with an adapter is computed by the decoder, which declines one it has not") {
  decoder_fixture d{{.bubbles = true, .simulated = true, .adapter = "sql"}};
  d.advance(1);
  REQUIRE(d.last<decoder_state>(front_of_decoder).adapters == std::vector<std::string>{"sql"});
  auto a = asked(5, 4);
  a.what.adapter = "sql";
  d.ask(a);
  d.advance(2);
  CHECK(d.take<prefill_request>().empty());
  CHECK(d.notified_of(a.what.name).made.tokens.size() == 4);
  auto b = asked(6, 4);
  b.what.adapter = "letters";
  d.ask(b);
  const auto end = d.last<generated>(front_of_decoder);
  CHECK(end.finish == ending::failed);
  CHECK(end.why.code == reason::kind::unavailable);
  CHECK_THAT(end.why.text, Contains("found no adapter 'letters' here"));
}
