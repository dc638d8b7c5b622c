// Impossible requests are refused with a sentence and leave the device unchanged.
#include <catch2/catch.hpp>
#include <limits>

#include "gpu/pipeline.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;
namespace kind_of = gpu::operations;

namespace {

stage_spec whole() {
  return whole_model(small_model());
}

template <class Change>
std::string refused(const tested_device& kind, Change change) {
  auto s = whole();
  change(s);
  const auto d = kind.make(s);
  return d ? "" : d.error().text;
}

}  // namespace

TEST_CASE("a model that the device cannot train is refused with a sentence") {
  const auto kind = GENERATE(from_range(devices()));
  const auto failure = [&](auto change) { return refused(kind, change); };
  CHECK(failure([](stage_spec&) {}) == "");
  CHECK_THAT(failure([](stage_spec& s) { s.model.family = "llama"; }), Contains("not 'llama'"));
  CHECK_THAT(failure([](stage_spec& s) { s.model.heads = 5; }), Contains("5 heads do not divide"));
  CHECK_THAT(failure([](stage_spec& s) { s.model.kv_heads = 1; }),
             Contains("1 key and value heads"));
  CHECK_THAT(failure([](stage_spec& s) { s.model.vocabulary = 0; }), Contains("larger than 0"));
  CHECK_THAT(failure([](stage_spec& s) { s.rows = 0; }), Contains("at least one sequence"));
  CHECK_THAT(failure([](stage_spec& s) { s.sublayers = 13; }), Contains("but the model has 12"));
  CHECK_THAT(failure([](stage_spec& s) { s.first_sublayer = 1, s.sublayers = 11; }),
             Contains("begin with sublayer 0"));
  CHECK_THAT(failure([](stage_spec& s) { s.sublayers = 11; }), Contains("end with sublayer 12"));
  CHECK_THAT(failure([](stage_spec& s) {
               s.first_sublayer = 4;
               s.sublayers = std::numeric_limits<std::uint32_t>::max();
             }),
             Contains("but the model has 12"));
  CHECK_THAT(failure([](stage_spec& s) { s.sublayers = 0, s.has_embedding = s.has_head = false; }),
             Contains("at least one sublayer"));
}

TEST_CASE("an invalid operation is refused, and the device keeps working") {
  const auto kind = GENERATE(from_range(devices()));
  const auto s = whole();
  auto made = kind.make(s);
  REQUIRE(made);
  auto& d = **made;
  const auto good = lessons(s.model, 1, 1, 1)[0];
  auto wrong = std::vector<std::uint32_t>(20, 0);
  wrong[7] = 37;
  CHECK_THAT(refusal(d, {kind_of::backward{}}), Contains("activations not available"));
  CHECK_THAT(refusal(d, {kind_of::recompute{}}), Contains("not run forward yet"));
  CHECK_THAT(refusal(d, {kind_of::forward{.input = good.input}}), Contains("2 payloads"));
  CHECK_THAT(refusal(d, {kind_of::forward{.input = tokens({1}), .targets = good.targets}}),
             Contains("20 tokens of 4 bytes; got 4 bytes"));
  CHECK_THAT(refusal(d, {kind_of::forward{.input = tokens(wrong), .targets = good.targets}}),
             Contains("token 37 is not in a vocabulary of 37"));
  CHECK_THAT(refusal(d, {kind_of::forward{.input = good.input, .targets = tokens(wrong)}}),
             Contains("token 37"));
  CHECK_THAT(refusal(d, {kind_of::update{.sums = {good.input, good.input}}}),
             Contains("update takes no payload, or gradients"));

  CHECK(refusal(d, {kind_of::forward{.input = good.input, .targets = good.targets}}) == "");
  CHECK_THAT(refusal(d, {kind_of::forward{.input = good.input, .targets = good.targets}}),
             Contains("already run forward"));
  CHECK_THAT(refusal(d, {kind_of::backward{}}), Contains("activations not available"));
  CHECK(refusal(d, {kind_of::recompute{}}) == "");
  CHECK(refusal(d, {kind_of::backward{}}) == "");
  CHECK(refusal(d, {kind_of::update{}}) == "");
  CHECK_THAT(refusal(d, {kind_of::save{"/proc/no"}}), Contains("cannot be created"));
}

TEST_CASE("a tied embedding on two stages is not updated with only its own gradient") {
  const auto kind = GENERATE(from_range(devices()));
  auto s = whole();
  s.has_head = false;
  s.sublayers = 6;
  auto d = kind.make(s);
  REQUIRE(d);
  CHECK_THAT(refusal(**d, {kind_of::update{}}), Contains("tied embedding"));
}

TEST_CASE("an activation of the wrong size is refused") {
  const auto kind = GENERATE(from_range(devices()));
  auto s = whole();
  s.has_embedding = s.has_head = false;
  auto d = kind.make(s);
  REQUIRE(d);
  CHECK_THAT(refusal(**d, {kind_of::forward{.input = tokens({1, 2})}}),
             Contains("an activation has 1920 bytes; got 8"));
}

TEST_CASE("a closed device answers every operation submitted before") {
  const auto kind = GENERATE(from_range(devices()));
  int answers = 0;
  {
    auto d = kind.make(whole());
    REQUIRE(d);
    for (int i = 0; i < 50; ++i)
      (*d)->submit({kind_of::weights{}}, [&](const expected<outcome>&) { ++answers; });
  }
  CHECK(answers == 50);
}
