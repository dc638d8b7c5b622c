#include <catch2/catch.hpp>

#include "actors/serving/front/front_fixture.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

TEST_CASE(
    "a scored prompt whose decoder is lost is sent to another one with its completion so far") {
  front_fixture f;
  f.state(a0, 1), f.state(b0, 2);
  model_prompt p{"m", {}, {10, 20, 30}};
  p.what.prompt_tokens = 3, p.what.max_tokens = 2, p.what.scores_prompt = true;
  std::vector<completion_update> all;
  f.front.submit(7, p, [&](const completion_update& n) { all.push_back(n); });
  f.answer(a0, 0, {20, 31});  // not the prompt's: it is ignored
  CHECK(all.empty());
  f.answer(a0, 0, {20});
  f.answer(a0, 1, {30, 5});
  REQUIRE(all.size() == 2);
  CHECK(all[0].scored == 1);
  CHECK(all[1].scored == 1);
  CHECK(all[1].tokens.size() == 2);
  f.leases.erase({a0, 1});
  f.state_leases();
  const auto again = f.latest<generate>(b0);
  CHECK(again.first.replay == 3);
  CHECK(tokens_of(again.second) == tokens{10, 20, 30, 5});
  f.answer(b0, 3, {6}, ending::length);
  REQUIRE(all.size() == 4);
  CHECK(all[2].scored == 0);
  CHECK(all[3].finish == ending::length);
  CHECK(f.front.report().counts.tokens == 2);
}
