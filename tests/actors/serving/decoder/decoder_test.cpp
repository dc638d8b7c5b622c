#include <atomic>
#include <new>

#include "actors/serving/decoder/batch_thread.hpp"
#include "actors/serving/decoder/decoder_fixture.hpp"
#include "actors/serving/decoder/simulated_batch.hpp"
#include "gpu/device/processors.hpp"
#include "harness/source_dir.hpp"
#include "messages/base/random.hpp"
#include "planners/bubbletea/prefill_times.hpp"
#include "runtime/host/wait.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using Catch::Contains;

// A decoder that prefills by itself.

using ending = generated::ending;

namespace {

template <class T>
std::vector<T> tokens_from(const std::vector<T>& all, std::ptrdiff_t first) {
  return {all.begin() + first, all.end()};
}

}  // namespace

TEST_CASE("a decoder's tokens are those of the model alone, bit for bit, in any company",
          "[decoder]") {
  constexpr std::uint32_t count = 24, pages = 30;  // too few for all at a time
  decoder_fixture d{{.pages = pages}};
  for (std::uint32_t i = 0; i < count; ++i) d.ask(asked(i));
  d.advance(0.1);
  auto& notified = d.listen();
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto a = asked(i);
    INFO("request " << i);
    CHECK(notified[a.what.name].made == alone(a));
    CHECK(notified[a.what.name].finish == ending::length);
    CHECK(notified[a.what.name].where);
    d.received(a.what.name, a.what.what.max_tokens, true);
  }
  CHECK(d.state().free_pages == pages);
  CHECK(d.device->unused_pages() == pages);
}

TEST_CASE("a decoder goes on from known tokens with the same bits, and does not send those again",
          "[decoder]") {
  const auto a = asked(4, 30);
  const auto whole = alone(a);
  for (const std::uint32_t known : {1u, 2u, 17u, 29u}) {
    decoder_fixture d;
    auto again = a;
    again.what.name.attempt = 2;
    again.what.replay = known;
    again.known.assign(whole.tokens.begin(), whole.tokens.begin() + known);
    d.knows(again.what.name, known);
    d.ask(again);
    d.advance(0.1);
    const auto& t = d.notified_of(again.what.name);
    CHECK(t.finish == ending::length);
    CHECK(t.made.tokens ==
          std::vector<std::uint32_t>{whole.tokens.begin() + known, whole.tokens.end()});
    CHECK(t.made.log_probabilities == std::vector<double>{whole.log_probabilities.begin() + known,
                                                          whole.log_probabilities.end()});
  }
}

TEST_CASE("a decoder ends at one of the last tokens", "[decoder]") {
  auto a = asked(4, 30);
  const auto tokens = alone(a).tokens;
  a.what.what.last_tokens = {tokens[9]};
  const auto first = std::find(tokens.begin(), tokens.end(), tokens[9]) - tokens.begin();
  decoder_fixture d;
  d.ask(a);
  d.advance(0.1);
  const auto& t = d.notified_of(a.what.name);
  CHECK(t.finish == ending::stop);
  CHECK(t.made == alone(a));
  CHECK(t.made.tokens.size() == static_cast<std::size_t>(first) + 1);
}

TEST_CASE("a decoder states what it holds at once, and repeats tokens until they are heard",
          "[decoder]") {
  decoder_fixture d;
  d.device->holds = true;
  const auto a = asked(6, 3);
  d.ask(a);
  auto all = d.take<generated>();
  REQUIRE(all.size() == 1);
  CHECK(all[0].tokens.empty());
  CHECK(all[0].finish == ending::none);
  const auto round = [&] {
    d.device->finish();
    d.advance(0.001);
  };
  round();
  all = d.take<generated>();
  REQUIRE(all.size() == 1);
  CHECK(all[0].tokens.size() == 1);
  CHECK(all[0].where);
  d.advance(0.19);
  CHECK(d.take<generated>().empty());
  d.advance(0.02);
  CHECK(d.take<generated>() == all);
  d.received(a.what.name, 1);
  d.advance(0.5);
  CHECK(d.take<generated>().empty());
  round();
  d.take<generated>();
  round();
  CHECK(d.last<generated>().first == 2);  // only new tokens
  d.advance(0.25);
  const auto both = d.last<generated>();
  CHECK(both.first == 1);
  CHECK(both.tokens.size() == 2);
  CHECK(both.finish == ending::length);
  d.received(a.what.name, 3);  // but not the end
  d.advance(0.25);
  CHECK(d.last<generated>().finish == ending::length);
  d.received(a.what.name, 3, true);
  d.advance(0.5);
  CHECK(d.take<generated>().empty());
}

TEST_CASE("a repeated request to a decoder is one attempt with one outcome", "[decoder]") {
  decoder_fixture d;
  const auto a = asked(7, 2);
  d.ask(a);
  d.ask(a);
  d.advance(0.05);
  CHECK(d.notified_of(a.what.name).made == alone(a));
  const auto rounds = d.device->rounds.size();
  d.ask(a);
  CHECK(d.last<generated>().finish == ending::length);
  d.received(a.what.name, 2, true);
  d.ask(a);  // late
  const auto after = d.last<generated>();
  CHECK(after.finish == ending::length);
  CHECK(after.first == 2);
  d.cancel(a.what.name);
  CHECK(d.last<generated>().finish == ending::length);
  d.advance(1);
  CHECK(d.take<generated>().empty());
  CHECK(d.device->rounds.size() <= rounds + 1);  // its pages' release
}

TEST_CASE("a newer attempt on the same decoder takes the place of an older one", "[decoder]") {
  decoder_fixture d{{.pages = 5}};
  d.device->holds = true;
  auto a = asked(5, 100);
  d.ask(a);
  d.take<generated>();
  auto b = a;
  b.what.name.attempt = 2;
  d.ask(b);
  CHECK(d.last<generated>().name == b.what.name);
  d.ask(a);  // late
  CHECK(d.take<generated>().empty());
  d.device->holds = false;
  d.device->finish();
  d.advance(0.1);
  CHECK(d.notified_of(b.what.name).made == alone(b));
  CHECK(d.listen().count(a.what.name) == 0);
}

TEST_CASE("a decoder's answer begins with the scores of the prompt if they are asked for",
          "[decoder]") {
  for (const bool bubbles : {false, true})
    for (const std::uint32_t max_tokens : {0u, 3u}) {
      decoder_fixture d{{.pages = 8, .bubbles = bubbles}};
      auto a = asked(4, 3);
      a.what.what.scores_prompt = true;
      a.what.what.max_tokens = max_tokens;
      a.what.what.top = 2;
      const auto prompt = a.prompt.size();
      d.ask(a);
      d.advance(0.5);
      CHECK(d.take<prefill_request>().empty());  // bubbles return the last hidden state alone
      const auto whole = d.notified_of(a.what.name);
      CHECK(whole.finish == ending::length);
      REQUIRE(whole.made.tokens.size() == prompt - 1 + max_tokens);
      CHECK(std::equal(a.prompt.begin() + 1, a.prompt.end(), whole.made.tokens.begin()));
      // Another decoder goes on wherever the front lost this one.
      for (const std::size_t had : {std::size_t{5}, prompt - 2, prompt - 1, prompt}) {
        if (had >= whole.made.tokens.size()) continue;
        INFO(had << " tokens are known");
        decoder_fixture other{{.pages = 8, .bubbles = bubbles}};
        auto b = a;
        b.what.name.attempt = 2;
        b.what.replay = static_cast<std::uint32_t>(had);
        for (std::size_t i = prompt - 1; i < had; ++i) b.known.push_back(whole.made.tokens[i]);
        other.knows(b.what.name, b.what.replay);
        other.ask(b);
        other.advance(0.5);
        const auto& rest = other.notified_of(b.what.name);
        CHECK(rest.finish == ending::length);
        const auto from = static_cast<std::ptrdiff_t>(had);
        CHECK(rest.made.tokens == tokens_from(whole.made.tokens, from));
        CHECK(rest.made.log_probabilities == tokens_from(whole.made.log_probabilities, from));
      }
    }
}

TEST_CASE("a cancelled request's pages are free at once, and it is not begun again", "[decoder]") {
  decoder_fixture d{{.pages = 5}};
  d.device->holds = true;
  const auto a = asked(5, 100), b = asked(4, 100);
  d.ask(a);
  d.ask(b);  // waits for a's pages
  CHECK(d.state().waiting == 1);
  d.cancel(a.what.name);
  CHECK(d.last<generated>().finish == ending::failed);
  const auto s = d.state();
  CHECK(s.running == 1);
  CHECK(s.waiting == 0);
  CHECK(s.free_pages == 3);  // of its prompt it has two
  d.ask(a);
  CHECK(d.last<generated>().finish == ending::failed);
  d.cancel(a.what.name);
  CHECK(d.last<generated>().finish == ending::failed);
  d.device->holds = false;
  d.device->finish();
  d.advance(0.1);
  CHECK(d.notified_of(b.what.name).made == alone(b));

  // A cancel may come first.
  const auto c = asked(6, 3);
  d.cancel(c.what.name);
  d.ask(c);
  CHECK(d.notified_of(c.what.name).finish == ending::failed);
  CHECK(d.listen()[c.what.name].made.tokens.empty());
}

TEST_CASE("after random cancels no page of a decoder is missing", "[decoder]") {
  constexpr std::uint32_t pages = 20;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    random_source random{seed};
    decoder_fixture d{{.pages = pages, .bubbles = seed % 2 == 0}};
    d.device->holds = true;
    std::vector<request_name> names;
    for (std::uint32_t i = 0; i < 150; ++i) {
      const auto a = asked(i, static_cast<std::uint32_t>(1 + random.below(60)));
      d.ask(a);
      names.push_back(a.what.name);
      if (random.chance(0.5)) d.cancel(names[random.below(names.size())]);
      for (const auto& p : d.take<prefill_request>())
        if (random.chance(0.3))
          d.decline(p.name);
        else if (random.chance(0.5))
          d.promise(p.name, 1, 0.1);
      if (d.device->busy() && random.chance(0.7)) d.device->finish();
      d.advance(0.01);
      d.listen();
    }
    for (const auto& n : names) d.cancel(n);
    d.device->holds = false;
    if (d.device->busy()) d.device->finish();
    d.advance(0.1);
    CHECK(d.state().free_pages == pages);
    CHECK(d.device->unused_pages() == pages);
    for (const auto& n : names) CHECK(d.notified_of(n).finish != ending::none);
  }
}

TEST_CASE("a decoder declines with a sentence what it cannot or may not hold", "[decoder]") {
  decoder_fixture d{{.pages = 3, .max_sequences = 2}};
  d.device->holds = true;
  const auto declined = [&](const asked_for& a, reason::kind k) {
    d.ask(a);
    const auto g = d.last<generated>();
    CHECK(g.name == a.what.name);
    CHECK(g.finish == ending::failed);
    CHECK(g.why.code == k);
    CHECK_FALSE(g.why.text.empty());
    return g.why.text;
  };
  using kind = reason::kind;
  auto a = asked(1);
  a.what.what.prompt_tokens = 0;
  declined(a, kind::invalid);
  a = asked(2);
  a.what.what.max_tokens = 400;
  CHECK_THAT(declined(a, kind::invalid), Contains("320 positions"));
  a = asked(3);
  a.what.what.max_tokens = 200;
  CHECK_THAT(declined(a, kind::invalid), Contains("the cache has 3"));
  a = asked(4);
  a.prompt[5] = 256;
  CHECK_THAT(declined(a, kind::invalid), Contains("256"));
  a = asked(6);
  a.prompt.pop_back();
  CHECK_THAT(declined(a, kind::invalid), Contains("found 16"));
  a = asked(7);
  a.what.what.how.temperature = -1;
  declined(a, kind::invalid);
  a = asked(8, 3);
  a.what.replay = 3;
  declined(a, kind::invalid);
  d.ask(asked(11, 9));
  d.ask(asked(12, 9));
  CHECK_THAT(declined(asked(14, 9), kind::insufficient), Contains("2 are allowed"));
  d.cancel(asked(11).what.name);
  declined(asked(14, 9), kind::insufficient);  // the outcome of that attempt stands
  d.take<generated>();
  d.ask(asked(15, 9));
  CHECK(d.last<generated>().finish == ending::none);
  // Not from that front.
  auto forged = asked(16);
  d.receive(second_front, forged.what, forged.body());
  CHECK(d.take<generated>().empty());
}

TEST_CASE("a decoder ends the requests of a front that does not hear it for a lease's duration",
          "[decoder]") {
  decoder_fixture d;
  auto a = asked(5, 40), b = asked(4, 40);
  b.what.name.front = second_front;
  d.ask(a);
  d.ask(b);
  for (int i = 0; i < 9; ++i) {
    d.advance(0.5);
    d.received(b.what.name, 40);  // but not that it has ended
  }
  CHECK_FALSE(d.take<generated>(front_of_decoder).empty());
  d.advance(1);
  d.received(b.what.name, 40);
  d.take<generated>();
  d.advance(0.4);
  CHECK(d.take<generated>(front_of_decoder).empty());
  CHECK_FALSE(d.take<generated>(second_front).empty());
}

TEST_CASE("a front's new process has none of the requests of the one before", "[decoder]") {
  decoder_fixture d{{.pages = 5}};
  d.device->holds = true;
  d.ask(asked(5, 100));
  CHECK(d.state().free_pages == 1);
  auto b = asked(6, 3);
  b.what.name.incarnation = 2;
  d.ask(b);
  CHECK(d.state().free_pages == 4);
  d.take<generated>();
  d.ask(asked(1));  // late, of the old one
  CHECK(d.take<generated>().empty());
}

TEST_CASE("a decoder states its model and its free pages to every front", "[decoder]") {
  decoder_fixture d{{.pages = 12}};
  d.ask(asked(5, 100));
  d.take<decoder_state>();
  d.advance(1.001);
  const auto all = d.take<decoder_state>(front_of_decoder);
  REQUIRE(all.size() == 4);  // each quarter of a heartbeat
  CHECK(d.take<decoder_state>(second_front).size() == 4);
  CHECK(all[0].lease == lease_of_decoder);
  CHECK(all[0].model == "small");
  CHECK(all[0].context == 320);
  CHECK(all[0].pages == 12);
  CHECK(all[3].sequence > all[2].sequence);
  d.post(stop_serving{});
  CHECK(d.last<decoder_state>(front_of_decoder).ending);
}

TEST_CASE("a decoder whose device fails ends all requests, and says so to its node", "[decoder]") {
  decoder_fixture d;
  d.device->holds = true;
  d.ask(asked(5, 100));
  d.ask(asked(6, 100));
  d.device->lost = reason{reason::kind::unavailable, "the device failed: out of memory"};
  d.device->finish();
  d.advance(0.1);
  for (const auto i : {5u, 6u}) {
    CHECK(d.notified_of(asked(i).what.name).finish == ending::failed);
    CHECK_THAT(d.notified_of(asked(i).what.name).why.text, Contains("out of memory"));
  }
  REQUIRE(d.serving_ends.size() == 1);
  CHECK(d.serving_ends[0].lease == lease_of_decoder);
  CHECK(d.last<decoder_state>(front_of_decoder).ending);
}

TEST_CASE("a simulated decoder takes the time that the planners say", "[decoder]") {
  decoder_fixture d{{.simulated = true, .start_s = 2}};
  const auto c = cluster_with_fronts();
  const auto layer = *planners::served_layer_of(harness::gpt2());
  const auto& gpu = c->gpus[0];
  d.advance(2);
  asked_for a = asked(1, 3);
  a.what.what.prompt_tokens = 200;  // without a body
  const double begin_s = d.now_s();
  d.receive(front_of_decoder, a.what);
  d.advance(2);
  const double prefill_s = planners::prefill_s(planners::prefill_rate_of(layer, gpu), 12, 200, 0);
  const double first_s = planners::decode_s(layer, gpu, 12, 1, 200);
  const double second_s = planners::decode_s(layer, gpu, 12, 1, 201);
  std::vector<double> times;
  for (const auto& m : d.sent)
    if (const auto* g = std::get_if<generated>(&m.what); g && !g->tokens.empty())
      times.push_back(m.at_s - begin_s);
  REQUIRE(times.size() >= 3);
  CHECK(times[0] == Approx(prefill_s).margin(1e-6));
  CHECK(times[1] == Approx(prefill_s + first_s).margin(1e-6));
  CHECK(times[2] == Approx(prefill_s + first_s + second_s).margin(1e-6));
  const auto& t = d.notified_of(a.what.name);
  CHECK(t.finish == ending::length);
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(t.made.tokens[i] ==
          simulated_token({{0, 1, 0, a.what.what.how.seed}, 200 + i, 0}, 50257).token);
}

TEST_CASE("a served model's device executes rounds on a thread of its own", "[decoder]") {
  const auto a = asked(4, 1);
  std::atomic<int> results{0};
  expected<decoder_model> opened = refuse(reason::kind::unknown, "");
  expected<std::vector<gpu::batch_result>> all = refuse(reason::kind::unknown, "");
  {
    batch_thread device{[] { return expected<loaded_model>{loaded_model{served_device(4), {}}}; }};
    device.open([&](expected<decoder_model> m) {
      opened = std::move(m);
      ++results;
    });
    REQUIRE(runtime::wait_until([&] { return results == 1; }, 30));
    REQUIRE(opened);
    CHECK(opened->pages == 4);
    CHECK(opened->vocabulary == 256);
    gpu::batch_queue q{{}, 4};
    gpu::batch_sequence s;
    s.id = 1;
    s.prompt = a.prompt;
    s.what = a.what.what;
    q.add(std::move(s));
    CHECK(q.admit().size() == 1);
    // A round has a tile of the prompt, and the last one the token.
    for (std::size_t tile = 0; tile < gpu::pages_for(a.what.what.prompt_tokens); ++tile) {
      results = 1;
      device.execute(q.next(), [&](expected<std::vector<gpu::batch_result>> r) {
        all = std::move(r);
        ++results;
      });
      REQUIRE(runtime::wait_until([&] { return results == 2; }, 30));
    }
  }
  REQUIRE(all);
  REQUIRE(all->size() == 1);
  CHECK(all->front().next->chosen.token == alone(a).tokens[0]);

  std::optional<reason> why;
  {
    batch_thread none{[]() -> expected<loaded_model> { throw std::bad_alloc{}; }};
    none.open([&](const expected<decoder_model>& m) {
      why = m.error();
      ++results;
    });
    REQUIRE(runtime::wait_until([&] { return results == 3; }, 30));
  }
  CHECK_THAT(why->text, Contains("loading the model failed"));
}

TEST_CASE("a served model is loaded from its folder, or refused with a sentence", "[decoder]") {
  serving s;
  s.model.folder = troupe::test::source_dir() + "/configs/models/scribe";
  s.kv_gb = 0.05;
  const auto d = load_model(s, "cpu");
  REQUIRE(d);
  CHECK((*d)->spec().pages == static_cast<std::uint32_t>(0.05e9 / (4 * 65536)));
  s.kv_gb = 0.001;
  CHECK_THAT(load_model(s, "cpu").error().text, Contains("kv_gb"));
  s.context = 128;
  CHECK(load_model(s, "cpu"));
  CHECK((*load_model(s, "cpu"))->spec().threads == 1);
  s.threads = gpu::allowed_processors();
  CHECK((*load_model(s, "cpu"))->spec().threads == *s.threads);
  ++*s.threads;
  CHECK_THAT(load_model(s, "cpu").error().text, Contains("threads: found"));
  s.threads = 1;
  CHECK_THAT(load_model(s, "cuda").error().text, Contains("not 'cuda'"));
  s.model.folder += "/none";
  CHECK_FALSE(load_model(s, "cpu"));
}
