#include "web/batch_loop.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>

#include "gpu/inference/generate.hpp"
#include "inference/small_inference_model.hpp"
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

sequence_request asked(std::uint32_t i) {
  sequence_request r;
  constexpr std::uint32_t lengths[] = {1, 63, 64, 65, 127, 200, 5, 30};
  for (std::uint32_t k = 0; k < lengths[i % 8]; ++k) r.prompt.push_back((i * 31 + k * 7) % 256);
  r.limits.max_tokens = 1 + i * 5 % 40;
  r.how = {i % 3 == 0 ? 0.0 : 0.9, 0.95, 0, i};
  return r;
}

/// What is heard of a sequence.
struct heard {
  std::mutex mutex;
  std::vector<std::uint32_t> tokens;
  std::vector<double> log_probabilities;
  std::atomic<std::uint32_t> count{0}, ends{0};

  sequence_listener listener() {
    return [this](const sequence_step& s) {
      const std::lock_guard hold{mutex};
      tokens.push_back(s.token);
      log_probabilities.push_back(s.log_probability);
      ++count;
      ends += s.finished != gpu::completion::finish::none || s.failed;
    };
  }
};

bool all_free(const batch_loop& loop, std::uint32_t pages) {
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
  std::vector<heard> ears(count);
  batch_limits limits;
  limits.prefill = 128;
  batch_loop loop{small_device(pages), nullptr, limits};
  for (std::uint32_t i = 0; i < count; ++i) REQUIRE(loop.submit({{asked(i), ears[i].listener()}}));
  for (auto& e : ears) REQUIRE(runtime::wait_until([&] { return e.ends == 1; }, long_s));
  CHECK(all_free(loop, pages));
  const auto alone = small_device(5);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto r = asked(i);
    gpu::completion out{r.limits, nullptr};
    gpu::generation g;
    g.prompt = r.prompt;
    g.limits = r.limits;
    g.how = r.how;
    REQUIRE(gpu::generate(*alone, g, out));
    CHECK(ears[i].tokens == out.tokens());
    CHECK(ears[i].log_probabilities == out.log_probabilities());
  }
}

TEST_CASE("the pages of cancelled sequences are free, whether they wait, begin or run") {
  constexpr std::uint32_t pages = 12;
  std::vector<heard> ears(200);
  batch_loop loop{small_device(pages), nullptr, {}};
  for (std::uint32_t i = 0; i < ears.size(); ++i) {
    auto r = asked(i);
    r.limits.max_tokens = 100;
    const auto ids = loop.submit({{r, ears[i].listener()}});
    REQUIRE(ids);
    if (i % 4 != 0) runtime::wait_until([&] { return ears[i].count >= i % 4; }, 0.02, 0.001);
    loop.cancel(*ids);
    loop.cancel(*ids);
  }
  CHECK(all_free(loop, pages));
  heard after;
  REQUIRE(loop.submit({{asked(3), after.listener()}}));
  CHECK(runtime::wait_until([&] { return after.ends == 1; }, long_s));
}

TEST_CASE("beyond the allowed sequences all or none are queued, and ends make room") {
  batch_limits limits;
  limits.sequences = 3;
  std::vector<heard> ears(6);
  batch_loop loop{small_device(6), nullptr, limits};
  auto long_one = asked(0);
  long_one.limits.max_tokens = 300;
  const auto first = loop.submit({{long_one, ears[0].listener()}, {long_one, ears[1].listener()}});
  REQUIRE(first);
  const auto two = loop.submit({{long_one, ears[2].listener()}, {long_one, ears[3].listener()}});
  REQUIRE_FALSE(two);
  CHECK(two.error().code == reason::kind::insufficient);
  REQUIRE(loop.submit({{long_one, ears[4].listener()}}));
  loop.cancel(*first);
  CHECK(runtime::wait_until([&] { return ears[4].ends == 1; }, long_s));
  REQUIRE(loop.submit({{asked(0), ears[3].listener()}, {asked(1), ears[5].listener()}}));
  CHECK(runtime::wait_until([&] { return ears[3].ends == 1 && ears[5].ends == 1; }, long_s));
  CHECK(ears[2].count == 0);
}

TEST_CASE("a sequence that can never run is refused with a sentence") {
  batch_loop loop{small_device(2), nullptr, {}};
  const auto why = [&](sequence_request r) {
    const auto ids = loop.submit({{std::move(r), [](const sequence_step&) {}}});
    REQUIRE_FALSE(ids);
    CHECK(ids.error().code == reason::kind::invalid);
    return ids.error().text;
  };
  auto r = asked(0);
  r.limits.max_tokens = 320;
  CHECK_THAT(why(r), Contains("320 new ones are more than the 320 positions"));
  r.limits.max_tokens = 200;
  CHECK_THAT(why(r), Contains("need 4 pages, and the cache has 2"));
  r.limits.max_tokens = 1;
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
