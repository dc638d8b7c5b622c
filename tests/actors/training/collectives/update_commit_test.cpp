#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <ranges>
#include <utility>
#include <vector>

#include "actors/training/collectives/update_commit.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::actors;
using kind = tensor::kind;

namespace {

stage_setup agreeing_stage(std::uint32_t stage, std::uint32_t stages, std::uint32_t pipeline = 0,
                           std::uint32_t pipelines = 1) {
  stage_setup s;
  s.name = {1, pipeline, stage};
  s.stages = stages;
  s.pipelines = pipelines;
  return s;
}

payload sized_body(std::size_t bytes) {
  return payload{std::vector<std::byte>(bytes)};
}

tensor agreement(kind what, std::uint32_t from_pipeline = 0, std::uint32_t from_stage = 0) {
  tensor t;
  t.what = what;
  t.from = {1, from_pipeline, from_stage};
  return t;
}

/// Pipelines whose stages begin, and whose words arrive, in an order drawn by chance, each twice.
class agreeing_stages {
 public:
  using place = std::pair<std::uint32_t, std::uint32_t>;  // pipeline, stage

  agreeing_stages(std::vector<std::vector<double>> norms, std::uint32_t pipelines)
      : norms_{std::move(norms)} {
    const auto n = static_cast<std::uint32_t>(norms_.size());
    for (std::uint32_t p = 0; p < pipelines; ++p)
      for (std::uint32_t s = 0; s < n; ++s)
        stages_[{p, s}] = update_commit{agreeing_stage(s, n, p, pipelines)};
  }

  /// This one is not ready to copy its state.
  void skip_copy(place who) { stages_.at(who).skip_copy(); }
  /// The number of stages that copy it after the update.
  std::ptrdiff_t copying() const {
    return std::ranges::count_if(stages_, [](const auto& s) { return !s.second.skips_copy(); });
  }
  /// This one still writes a checkpoint.
  void skip(place who) { stages_.at(who).skip_checkpoint(); }
  /// The number of stages that begin a checkpoint after the update.
  std::ptrdiff_t saving() const {
    return std::ranges::count_if(stages_,
                                 [](const auto& s) { return !s.second.skips_checkpoint(); });
  }

  /// The results of all stages.
  std::vector<double> run(random_source& random) {
    std::vector<place> waiting;
    for (const auto& [at, s] : stages_) waiting.push_back(at);
    while (!waiting.empty() || !sent_.empty()) {
      const auto at = random.below(waiting.size() + sent_.size());
      if (at < waiting.size()) {
        const auto who = waiting[at];
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(at));
        keep(who, stages_.at(who).begin(norms_[who.second]));
      } else {
        const auto i = at - waiting.size();
        const auto [from, o] = sent_[i];
        sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(i));
        const place to{o.to_pipeline, o.to_stage};
        for (int twice = 0; twice < 2; ++twice)
          keep(to, stages_.at(to).receive(agreement(o.what, from.first, from.second), o.body));
      }
      for (const auto& [who, s] : stages_) CHECK_FALSE((s.complete() && !waiting.empty()));
    }
    std::vector<double> all;
    for (const auto& [who, s] : stages_) {
      CHECK(s.complete());
      CHECK(s.missing().empty());
      CHECK(s.error().empty());
      all.push_back(s.squared_norm());
    }
    return all;
  }

 private:
  void keep(place from, const update_commit::outgoing& out) {
    for (const auto& o : out) sent_.emplace_back(from, o);
  }

  std::vector<std::vector<double>> norms_;
  std::map<place, update_commit> stages_;
  std::vector<std::pair<place, gradient_all_reduce::outgoing>> sent_;
};

}  // namespace

TEST_CASE(
    "no stage updates before all can, and all have the norm of all layers, however they are cut") {
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
    const auto pipelines = 1 + static_cast<std::uint32_t>(random.below(4));
    for (const auto result : agreeing_stages{cut, pipelines}.run(random)) CHECK(result == expected);
  }
}

TEST_CASE("if one stage skips a checkpoint or a copy of its state, all do; else none does") {
  random_source random{2};
  for (int round = 0; round < 100; ++round) {
    const auto stages = 1 + static_cast<std::uint32_t>(random.below(4));
    const auto pipelines = 1 + static_cast<std::uint32_t>(random.below(3));
    agreeing_stages all{std::vector<std::vector<double>>(stages), pipelines};
    const bool saves = random.chance(0.5), copies = random.chance(0.5);
    const auto one = [&] {
      return agreeing_stages::place{static_cast<std::uint32_t>(random.below(pipelines)),
                                    static_cast<std::uint32_t>(random.below(stages))};
    };
    if (!saves) all.skip(one());
    if (!copies) all.skip_copy(one());
    all.run(random);
    CHECK(all.saving() == (saves ? stages * pipelines : 0));
    CHECK(all.copying() == (copies ? stages * pipelines : 0));
  }
}

TEST_CASE("a stage that cannot update yet names those that have not agreed") {
  using missing = std::vector<std::pair<kind, agreeing_stages::place>>;
  const auto of = [](const update_commit& c) {
    missing all;
    for (const auto& m : c.missing()) all.push_back({m.what, {m.from_pipeline, m.from_stage}});
    return all;
  };
  update_commit lead{agreeing_stage(1, 3, 0, 3)}, peer{agreeing_stage(1, 3, 2, 3)};
  CHECK(lead.missing().empty());  // it has not begun
  lead.begin({1});
  CHECK(of(lead) == missing{{kind::ready, {0, 2}}, {kind::ready, {1, 1}}, {kind::ready, {2, 1}}});
  lead.receive(agreement(kind::ready, 2, 1), sized_body(8));
  CHECK(of(lead) == missing{{kind::ready, {0, 2}}, {kind::ready, {1, 1}}});
  lead.receive(agreement(kind::ready, 1, 1), sized_body(8));
  CHECK(lead.receive(agreement(kind::ready, 0, 2), sized_body(8)).size() == 1);
  CHECK(of(lead) == missing{{kind::commit, {0, 0}}});
  peer.begin({1});
  CHECK(of(peer) == missing{{kind::commit, {0, 1}}});
}

TEST_CASE("a view that begins with an update says its norm and records, as the word would have") {
  update_commit peer{agreeing_stage(1, 3, 2, 3)};
  peer.begin({1}, pipeline_record{2, 0.5, {}});
  CHECK_FALSE(peer.agreed());
  peer.agree({42, {{0, 0.25, {}}, {1, 0.75, {}}, {2, 0.5, {}}}});
  CHECK(peer.complete());
  CHECK(peer.squared_norm() == 42);
  CHECK(peer.missing().empty());
  REQUIRE(peer.agreed());
  CHECK(peer.agreed()->records.size() == 3);
  for (std::uint32_t p = 0; p < 3; ++p) CHECK(peer.agreed()->records[p].pipeline == p);
  // The word that was on its way says nothing new.
  CHECK(peer.receive(agreement(kind::commit), sized_body(8)).empty());
  CHECK(peer.error().empty());
  CHECK(peer.squared_norm() == 42);
}

TEST_CASE("a word of another size is an error, and to update before a stage is ready, too") {
  update_commit middle{agreeing_stage(1, 3)};
  CHECK(middle.receive(agreement(kind::ready), sized_body(7)).empty());
  CHECK(middle.error() == "a stage agrees to an update with 7 bytes, expected 8");
  update_commit early{agreeing_stage(1, 3)};
  CHECK(early.receive(agreement(kind::commit), sized_body(8)).empty());
  CHECK(early.error() == "a stage is told to update before it is ready to");
  CHECK_FALSE(early.complete());
}
