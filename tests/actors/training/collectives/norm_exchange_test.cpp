#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <ranges>
#include <vector>

#include "actors/training/collectives/norm_exchange.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::actors;
using kind = tensor::kind;

namespace {

stage_setup stage_of(std::uint32_t stage, std::uint32_t stages) {
  stage_setup s;
  s.name = {1, 0, stage};
  s.stages = stages;
  return s;
}

/// A pipeline whose stages begin, and whose tensors arrive, in an order drawn by chance, each
/// twice.
class pipeline {
 public:
  explicit pipeline(std::vector<std::vector<double>> norms) : norms_{std::move(norms)} {
    const auto n = static_cast<std::uint32_t>(norms_.size());
    for (std::uint32_t s = 0; s < n; ++s) stages_.emplace_back(stage_of(s, n));
  }

  /// The results of all stages.
  std::vector<double> run(random_source& random) {
    std::vector<std::uint32_t> waiting;
    for (std::uint32_t s = 0; s < stages_.size(); ++s) waiting.push_back(s);
    while (!waiting.empty() || !sent_.empty()) {
      const auto at = random.below(waiting.size() + sent_.size());
      if (at < waiting.size()) {
        const auto s = waiting[at];
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(at));
        keep(stages_[s].begin(norms_[s]));
      } else {
        const auto i = at - waiting.size();
        const auto o = sent_[i];
        sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(i));
        tensor t;
        t.what = o.what;
        keep(stages_[o.to_stage].receive(t, o.body));
        keep(stages_[o.to_stage].receive(t, o.body));
      }
    }
    std::vector<double> all;
    for (const auto& s : stages_) {
      CHECK(s.complete());
      CHECK(s.missing().empty());
      all.push_back(s.result());
    }
    return all;
  }

 private:
  void keep(norm_exchange::outgoing out) { std::ranges::move(out, std::back_inserter(sent_)); }

  std::vector<std::vector<double>> norms_;
  std::vector<norm_exchange> stages_;
  norm_exchange::outgoing sent_;
};

}  // namespace

TEST_CASE("every stage has the sum of all layers' norms from the last on, however they are cut") {
  random_source random{1};
  for (int round = 0; round < 300; ++round) {
    std::vector<double> layers(1 + random.below(12));
    // Sums of these depend on their order.
    for (auto& x : layers) x = std::exp(40 * random.uniform() - 20);
    double expected = 0;
    for (const auto x : std::views::reverse(layers)) expected += x;
    std::vector<std::vector<double>> cut(1);
    for (const auto x : layers) {
      if (!cut.back().empty() && random.chance(0.4)) cut.emplace_back();
      cut.back().push_back(x);
    }
    for (const auto result : pipeline{cut}.run(random)) CHECK(result == expected);
  }
}

TEST_CASE("a stage that waits for a norm names the neighbour that has it") {
  norm_exchange middle{stage_of(1, 3)}, last{stage_of(2, 3)};
  CHECK(middle.missing().empty());  // it has not begun
  middle.begin({1});
  REQUIRE(middle.missing().size() == 1);
  CHECK(middle.missing()[0].what == kind::norm_partial);
  CHECK(middle.missing()[0].from_stage == 2);
  last.begin({1});
  REQUIRE(last.missing().size() == 1);
  CHECK(last.missing()[0].what == kind::norm_sum);
  CHECK(last.missing()[0].from_stage == 1);
}

TEST_CASE("a sum of norms of another size is an error") {
  norm_exchange middle{stage_of(1, 3)};
  tensor t;
  t.what = kind::norm_partial;
  CHECK(middle.receive(t, payload{std::vector<std::byte>(7)}).empty());
  CHECK(middle.error() == "a sum of norms has 7 bytes, expected 8");
}
