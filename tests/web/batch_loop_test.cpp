#include "web/openai/batch_loop.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>

#include "gpu/inference/generate.hpp"
#include "gpu/inference/sampling.hpp"
#include "gpu/inference/small_inference_model.hpp"
#include "runtime/host/wait.hpp"

using namespace troupe;
using namespace troupe::web;
using Catch::Contains;

// Many sequences on one device, against gpu::generate(), which has a device to itself.

namespace {

constexpr double long_s = 60, soon_s = 15;

std::unique_ptr<gpu::inference_device> small_device(std::uint32_t pages) {
  auto spec = gpu::whole_model(test::small_inference_model(), pages);
  spec.seed = 7;
  auto d = gpu::make_cpu_inference_device(spec);
  REQUIRE(d);
  return std::move(*d);
}

generator::submission asked(std::uint32_t i) {
  generator::submission r;
  constexpr std::uint32_t lengths[] = {1, 63, 64, 65, 127, 200, 5, 30};
  for (std::uint32_t k = 0; k < lengths[i % 8]; ++k) r.prompt.push_back((i * 31 + k * 7) % 256);
  r.what.prompt_tokens = static_cast<std::uint32_t>(r.prompt.size());
  r.what.max_tokens = 1 + i * 5 % 40;
  r.what.how = {i % 3 == 0 ? 0.0 : 0.9, 0.95, 0, i};
  return r;
}

generator::submission received_by(generator::submission s, sequence_listener l) {
  s.listener = std::move(l);
  return s;
}

/// The steps of a sequence that its listener received.
struct received {
  std::mutex mutex;
  std::vector<std::uint32_t> tokens;
  std::vector<double> log_probabilities;
  std::atomic<std::uint32_t> count{0}, ends{0};

  sequence_listener listener() {
    return [this](const sequence_step& s) {
      const std::lock_guard hold{mutex};
      tokens.push_back(s.token.chosen.token);
      log_probabilities.push_back(s.token.chosen.log_probability);
      ++count;
      ends += s.finished != gpu::completion::finish::none || s.failed;
    };
  }
};

bool all_free(const generator& loop, std::uint32_t pages) {
  return runtime::wait_until(
      [&] {
        const auto s = loop.state();
        return s.pages_used == 0 && s.pages_free == pages && s.running == 0 && s.waiting == 0;
      },
      soon_s);
}

}  // namespace

TEST_CASE("a sequence has the same tokens and log probabilities alone and in any company") {
  constexpr std::uint32_t count = 24, pages = 30;  // too few for all at a time
  std::vector<received> ears(count);
  batch_limits limits;
  limits.prefill = 128;
  const auto made = make_batch_loop(small_device(pages), nullptr, limits);
  auto& loop = *made;
  for (std::uint32_t i = 0; i < count; ++i)
    REQUIRE(loop.submit({received_by(asked(i), ears[i].listener())}));
  for (auto& e : ears) REQUIRE(runtime::wait_until([&] { return e.ends == 1; }, long_s));
  CHECK(all_free(loop, pages));
  const auto alone = small_device(5);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto r = asked(i);
    gpu::completion out{r.what, {}, nullptr};
    gpu::generation g;
    g.what = r.what;
    g.prompt = r.prompt;
    REQUIRE(gpu::generate(*alone, g, out));
    CHECK(ears[i].tokens == out.tokens());
    CHECK(ears[i].log_probabilities == out.log_probabilities());
  }
}

TEST_CASE(
    "a prompt that begins like another one computes its last page, which is said and counted") {
  const auto made = make_batch_loop(small_device(20), nullptr, {});
  auto& loop = *made;
  auto r = asked(5);
  r.prompt.resize(300, 9);
  r.what.prompt_tokens = 300;
  r.what.max_tokens = 3;
  for (std::uint32_t i = 0; i < 3; ++i) {
    r.prompt.back() = i;
    std::vector<std::uint32_t> cached;
    std::atomic<bool> over{false};
    REQUIRE(loop.submit({received_by(r, [&](const sequence_step& s) {
      cached.push_back(s.cached);
      if (s.finished != gpu::completion::finish::none || s.failed) over = true;
    })}));
    REQUIRE(runtime::wait_until([&] { return over.load(); }, long_s));
    const std::uint32_t found = i == 0 ? 0 : 256;
    CHECK(cached == std::vector<std::uint32_t>{found, 0, 0});
    const auto s = loop.state();
    CHECK(s.computed_prompt == 300u + i * 44);
    CHECK(s.cached_prompt == i * 256u);
    CHECK(s.pages_cached == 4);
    CHECK(s.set_back == 0);
  }
}

TEST_CASE("the pages of cancelled sequences are free, whether they wait, begin or run") {
  constexpr std::uint32_t pages = 12;
  std::vector<received> ears(200);
  const auto made = make_batch_loop(small_device(pages), nullptr, {});
  auto& loop = *made;
  for (std::uint32_t i = 0; i < ears.size(); ++i) {
    auto r = asked(i);
    r.what.max_tokens = 100;
    const auto ids = loop.submit({received_by(r, ears[i].listener())});
    REQUIRE(ids);
    if (i % 4 != 0) runtime::wait_until([&] { return ears[i].count >= i % 4; }, 0.02, 0.001);
    loop.cancel(*ids);
    loop.cancel(*ids);
  }
  CHECK(all_free(loop, pages));
  received after;
  REQUIRE(loop.submit({received_by(asked(3), after.listener())}));
  CHECK(runtime::wait_until([&] { return after.ends == 1; }, long_s));
}

TEST_CASE("beyond the allowed sequences all or none are queued, and ends make room") {
  batch_limits limits;
  limits.sequences = 3;
  std::vector<received> ears(6);
  const auto made = make_batch_loop(small_device(6), nullptr, limits);
  auto& loop = *made;
  auto long_one = asked(0);
  long_one.what.max_tokens = 300;
  const auto first = loop.submit(
      {received_by(long_one, ears[0].listener()), received_by(long_one, ears[1].listener())});
  REQUIRE(first);
  const auto two = loop.submit(
      {received_by(long_one, ears[2].listener()), received_by(long_one, ears[3].listener())});
  REQUIRE_FALSE(two);
  CHECK(two.error().code == reason::kind::insufficient);
  // More than are ever allowed: no later attempt can succeed.
  std::vector<generator::submission> four;
  for (int i = 0; i < 4; ++i) four.push_back(received_by(asked(0), ears[3].listener()));
  const auto never = loop.submit(std::move(four));
  REQUIRE_FALSE(never);
  CHECK(never.error().code == reason::kind::invalid);
  REQUIRE(loop.submit({received_by(long_one, ears[4].listener())}));
  loop.cancel(*first);
  CHECK(runtime::wait_until([&] { return ears[4].ends == 1; }, long_s));
  REQUIRE(loop.submit(
      {received_by(asked(0), ears[3].listener()), received_by(asked(1), ears[5].listener())}));
  CHECK(runtime::wait_until([&] { return ears[3].ends == 1 && ears[5].ends == 1; }, long_s));
  CHECK(ears[2].count == 0);
}

TEST_CASE("a sequence that can never run is refused with a sentence") {
  const auto made = make_batch_loop(small_device(2), nullptr, {});
  auto& loop = *made;
  const auto why = [&](generator::submission r) {
    r.what.prompt_tokens = static_cast<std::uint32_t>(r.prompt.size());
    const auto ids = loop.submit({received_by(std::move(r), [](const sequence_step&) {})});
    REQUIRE_FALSE(ids);
    CHECK(ids.error().code == reason::kind::invalid);
    return ids.error().text;
  };
  auto r = asked(0);
  r.what.max_tokens = 320;
  CHECK_THAT(why(r), Contains("320 new ones are more than the 320 positions"));
  r.what.max_tokens = 200;
  CHECK_THAT(why(r), Contains("need 4 pages, and the cache has 2"));
  r.what.max_tokens = 1;
  r.prompt = {256};
  CHECK_THAT(why(r), Contains("token 256 is beyond the vocabulary of 256"));
  CHECK_THAT(why({}), Contains("at least one token"));
}

TEST_CASE("the most probable tokens come best first, with equal ones in the order of numbers") {
  const std::vector<float> logits{0, 2, 1, 2};
  const auto top = gpu::top_tokens(logits, 3);
  REQUIRE(top.size() == 3);
  CHECK(top[0].token == 1);
  CHECK(top[1].token == 3);
  CHECK(top[2].token == 2);
  CHECK(top[0].log_probability == gpu::sample(logits, {}, 0).log_probability);
  CHECK(gpu::top_tokens(logits, 9).size() == 4);
  CHECK(gpu::top_tokens(logits, 0).empty());
}

TEST_CASE("a prompt's scores are the log probabilities of one token at a time, bit for bit") {
  batch_limits limits;
  limits.prefill = 64;  // several chunks
  const auto made = make_batch_loop(small_device(40), nullptr, limits);
  auto& loop = *made;
  for (const std::uint32_t max_tokens : {0u, 3u})
    for (const std::uint32_t i : {1u, 2u, 3u, 5u}) {
      auto r = asked(i);
      r.what.max_tokens = max_tokens;
      r.what.scores_prompt = true;
      r.what.top = 2;
      std::vector<sequence_step> steps;
      std::atomic<bool> over{false};
      REQUIRE(loop.submit({received_by(r, [&](const sequence_step& s) {
        steps.push_back(s);
        if (s.finished != gpu::completion::finish::none || s.failed) over = true;
      })}));
      REQUIRE(runtime::wait_until([&] { return over.load(); }, long_s));
      INFO(r.prompt.size() << " tokens, " << max_tokens << " new ones");
      REQUIRE(steps.size() == r.prompt.size() - 1 + max_tokens);
      for (const std::size_t at : {std::size_t{1}, r.prompt.size() / 2, r.prompt.size() - 1}) {
        const auto device = small_device(5);
        gpu::generation g;
        g.prompt.assign(r.prompt.begin(), r.prompt.begin() + static_cast<std::ptrdiff_t>(at));
        g.what.prompt_tokens = static_cast<std::uint32_t>(at);
        g.what.how.bias = {{r.prompt[at], 1000}};
        gpu::completion out{g.what, {}, nullptr};
        REQUIRE(gpu::generate(*device, g, out));
        const auto& scored = steps[at - 1];
        CHECK(scored.of_prompt);
        CHECK(scored.text.empty());
        CHECK(scored.token.chosen.token == r.prompt[at]);
        CHECK(scored.token.chosen.log_probability == out.log_probabilities()[0]);
        CHECK(scored.token.top.size() == 2);
        CHECK(scored.token.top[0].log_probability >= scored.token.chosen.log_probability);
      }
      CHECK(all_free(loop, 40));
    }
}
