#include "planners/replicas/shares.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::planners;

TEST_CASE("a share from a pipeline's begin on is one piece, of any other each micro-batch is one") {
  CHECK(pieces_of({{2, 3, 2}, {1, 0, 4}}) == std::vector<piece>{{1, 0, 4}, {2, 3, 1}, {2, 4, 1}});
  CHECK(pieces_of({{0, 2, 1}, {0, 0, 2}}) == std::vector<piece>{{0, 0, 3}});
  CHECK(pieces_of({}).empty());
  CHECK(pieces_of({{0, 0, 0}}).empty());
}

TEST_CASE("pieces are added as micro-batches follow each other, in whatever order they come") {
  random_source random{1};
  for (int round = 0; round < 300; ++round) {
    const auto microbatches = static_cast<std::uint32_t>(1 + random.below(9));
    const auto replicas = 1 + random.below(4);
    std::vector<std::vector<share>> work(replicas);
    for (std::uint32_t m = 0; m < microbatches; ++m)
      work[random.below(replicas)].push_back({3, m, 1});
    std::vector<piece> pieces;
    for (const auto& w : work)
      for (const auto& p : pieces_of(w)) pieces.push_back(p);
    for (std::size_t i = pieces.size(); i > 1; --i)
      std::swap(pieces[i - 1], pieces[random.below(i)]);
    const auto order = fold_plan(pieces, microbatches);
    REQUIRE(order);
    std::vector<std::uint32_t> added;
    for (const auto i : *order)
      for (auto m = pieces[i].first; m < pieces[i].end(); ++m) added.push_back(m);
    REQUIRE(added.size() == microbatches);
    CHECK(std::ranges::is_sorted(added));
    CHECK(std::ranges::adjacent_find(added) == added.end());
  }
}

TEST_CASE("pieces that do not cover a pipeline once are not added, and the reason says where") {
  const auto refused = [](const std::vector<piece>& pieces, std::uint32_t microbatches) {
    const auto order = fold_plan(pieces, microbatches);
    REQUIRE_FALSE(order);
    CHECK(order.error().code == reason::kind::malformed);
    return order.error().text;
  };
  CHECK(refused({{1, 0, 2}, {1, 3, 1}}, 4) == "pipeline 1: no piece has micro-batch 2");
  CHECK(refused({{1, 0, 2}, {1, 1, 1}}, 2) == "pipeline 1: two pieces have micro-batch 1");
  CHECK(refused({{1, 0, 2}, {1, 0, 2}}, 2) == "pipeline 1: two pieces have micro-batch 0");
  CHECK(refused({{1, 1, 1}}, 2) == "pipeline 1: no piece has micro-batch 0");
  CHECK(refused({{1, 0, 2}}, 3) == "the pieces have 2 micro-batches of 3");
  CHECK(refused({{1, 0, 4}}, 3) == "the pieces have 4 micro-batches of 3");
  CHECK(refused({}, 1) == "the pieces have 0 micro-batches of 1");
  // Its sum would be (0) + (1 + 2), and not (0 + 1) + 2.
  CHECK(refused({{1, 0, 1}, {1, 1, 2}}, 3) ==
        "pipeline 1: a piece has 2 micro-batches from 1 on, expected one");
  CHECK(refused({{1, 0, 1}, {2, 1, 1}}, 2) == "pieces of pipelines 1 and 2 are added as one's");
}
