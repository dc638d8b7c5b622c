#include "actors/training/device/stage_backend.hpp"

#include <catch2/catch.hpp>

#include <set>

#include "harness/facts.hpp"
#include "harness/scratch.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

/// Stage `s` of three of a small GPT, each of two sublayers.
stage_setup a_stage(std::uint32_t s, const std::string& data = {}) {
  stage_setup x;
  x.name = {7, 0, s};
  x.devices = {0};
  x.backend = "cpu";
  x.model.name = "small";
  x.model.family = "gpt";
  x.model.hidden = 32;
  x.model.layers = 3;
  x.model.heads = 4;
  x.model.sequence = 8;
  x.model.vocabulary = 256;
  x.how.data = data;
  x.how.seed = 5;
  x.first_sublayer = 2 * s;
  x.sublayers = 2;
  x.stages = 3;
  x.pipelines = 2;
  x.microbatches = 4;
  x.rows = 2;
  x.order = {{stage_step::kind::forward, 0, 0}, {stage_step::kind::backward, 0, 0}};
  return x;
}

}  // namespace

TEST_CASE("a stage has a device of its kind, and data if it is the first or the last") {
  const troupe::test::scratch room;
  const auto text = room.write("text", std::string(5000, 'x') + std::string(5000, 'y'));
  for (const auto s : {0u, 1u, 2u}) {
    const auto made = make_backend(a_stage(s, text));
    INFO((made ? std::string{} : made.error().text));
    REQUIRE(made);
    CHECK(made->device != nullptr);
    CHECK(static_cast<bool>(made->tokens) == (s != 1));
  }
  CHECK(make_backend(a_stage(1)));  // in the middle it needs no data
  CHECK_FALSE(make_backend(a_stage(0, room / "none")));
}

TEST_CASE("a stage without a device, or with a device of unknown kind, is refused") {
  auto s = a_stage(1);
  s.devices.clear();
  CHECK(make_backend(s).error().text == "a stage needs a device");
  s = a_stage(1);
  s.backend = "abacus";
  const auto refused = make_backend(s);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == reason::kind::infeasible);
  CHECK(troupe::test::has_facts(refused.error().text, {"cpu", "cuda", "abacus"}));
}

TEST_CASE("all micro-batches of an iteration have different sequences, across pipelines") {
  const troupe::test::scratch room;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += static_cast<char>('a' + i * i % 7919 % 26);
  const auto file = room.write("text", text);
  std::set<std::vector<std::byte>> seen;
  std::size_t batches = 0;
  for (const auto p : {0u, 1u}) {
    auto s = a_stage(0, file);
    s.name.pipeline = p;
    const auto made = make_backend(s);
    REQUIRE(made);
    for (std::uint32_t m = 0; m < s.microbatches; ++m, ++batches) {
      const auto read = made->tokens(1, m);
      REQUIRE(read);
      const auto& [tokens, targets] = *read;
      const auto bytes = tokens.bytes();
      CHECK(bytes.size() == 2 * 8 * 4);
      CHECK(targets.bytes().size() == bytes.size());
      seen.emplace(bytes.begin(), bytes.end());
    }
  }
  CHECK(seen.size() == batches);
}
