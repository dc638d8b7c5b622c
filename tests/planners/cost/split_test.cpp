#include "harness/facts.hpp"
#include "planners/cost/model_partition.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>

#include "planners/model/job_memory.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

/// The bytes of the stage that needs the largest number of them.
double largest_bytes(const std::vector<stage_part>& parts, const stage_load& load) {
  double max = 0;
  for (const auto& p : parts) max = std::max(max, memory_of(job_spec{}, p, load).total());
  return max;
}

using counts = std::vector<std::uint32_t>;
using chain = std::vector<chain_link>;
constexpr double unlimited = std::numeric_limits<double>::infinity();

struct worth {
  double largest = 0, squares = 0;
};
worth of(const chain& links, const counts& cut, double max_size, double last_share) {
  worth w;
  auto at = links.begin();
  for (const auto n : cut) {
    double sum = 0, size = 0;
    for (const auto end = at + n; at != end; ++at) sum += at->weight, size += at->size;
    if (at == links.end()) sum *= last_share;
    w.largest = std::max(w.largest, size > max_size ? unlimited : sum);
    w.squares += sum * sum;
  }
  return w;
}

/// By trying every cut.
worth overall_min(const chain& links, std::uint32_t parts, double max_size, double last_share) {
  worth min{unlimited, unlimited};
  counts cut(parts);
  const std::function<void(std::uint32_t, std::uint32_t)> choose = [&](std::uint32_t i,
                                                                       std::uint32_t left) {
    if (i + 1 == parts) {
      cut[i] = left;
      const auto w = of(links, cut, max_size, last_share);
      const bool as_large = w.largest <= min.largest * (1 + 1e-12);
      if (w.largest < min.largest * (1 - 1e-12) || (as_large && w.squares < min.squares)) min = w;
      return;
    }
    for (cut[i] = 1; left - cut[i] >= parts - i - 1; ++cut[i]) choose(i + 1, left - cut[i]);
  };
  choose(0, static_cast<std::uint32_t>(links.size()));
  return min;
}

counts of(const std::vector<stage_part>& parts) {
  counts n;
  for (const auto& p : parts) n.push_back(p.count);
  return n;
}

job_spec keeping(job_spec job) {
  job.pipeline.recompute = false;
  return job;
}

job_spec engine(std::uint32_t words) {
  return sample::job(sample::gpt("engine", 384, 6, 6, 256, words), 4);
}

}  // namespace

TEST_CASE(
    "the cut of a chain has the smallest possible largest part, and is the most even of those") {
  random_source random{23};
  int fitted = 0;
  for (int i = 0; i < 2000; ++i) {
    chain links(1 + random.below(11));
    for (auto& l : links) {
      l.weight = random.chance(0.1)   ? 0
                 : random.chance(0.5) ? static_cast<double>(random.below(5))
                                      : random.uniform() * 10;
      l.size = static_cast<double>(random.below(5));
    }
    const auto parts = static_cast<std::uint32_t>(1 + random.below(links.size()));
    const double max_size = random.chance(0.5) ? unlimited : static_cast<double>(random.below(20));
    const double last_share = random.chance(0.5) ? 1 : random.uniform();
    const auto cut = cut_evenly(links, parts, max_size, last_share);
    const auto min = overall_min(links, parts, max_size, last_share);
    CAPTURE(i, parts, cut);
    CHECK(cut.empty() == (min.largest == unlimited));
    if (cut.empty()) continue;
    ++fitted;
    REQUIRE(cut.size() == parts);
    CHECK(*std::ranges::min_element(cut) >= 1);
    CHECK(std::accumulate(cut.begin(), cut.end(), 0u) == links.size());
    const auto made = of(links, cut, max_size, last_share);
    CHECK(made.largest == Approx(min.largest).epsilon(1e-9));
    CHECK(made.squares == Approx(min.squares).epsilon(1e-9));
  }
  CHECK(fitted > 1000);
  CHECK(fitted < 2000);
}

TEST_CASE("equal pieces are distributed evenly") {
  CHECK(cut_evenly(chain(6, {1, 0}), 3) == counts{2, 2, 2});
  CHECK(cut_evenly(chain(6, {1, 0}), 4) == counts{2, 2, 1, 1});
  CHECK(cut_evenly(chain(3, {0, 0}), 3) == counts{1, 1, 1});
}

TEST_CASE("two stages of the engine's model are cut after the fourth layer's attention") {
  const auto parts = split_model(keeping(engine(4096)), 2);
  CHECK(of(parts) == counts{7, 5});
  CHECK(parts[0].first == 0);
  CHECK(parts[1].first == 7);
  CHECK(parts[0].flops == parts[1].flops);  // 3 layers and 0.4 against 0.6, 2 and a head of 0.8
  CHECK(of(split_model(keeping(engine(256)), 2)) == counts{6, 6});
  // Where the first stage goes forward twice, 3 layers four times against 3 and the head thrice.
  CHECK(of(split_model(engine(4096), 2)) == counts{6, 6});
}

TEST_CASE("a stage that never recomputes holds all activations of its micro-batches") {
  const auto parts = split_model(engine(4096), 2);
  const double weights = largest_bytes(parts, {0, 0}), one = largest_bytes(parts, {1, 1}),
               four = largest_bytes(parts, {1, 4});
  const double keeps = largest_bytes(parts, {.rows = 1, .held = 4, .recompute = false});
  const double input = (four - one) / 3, activations = one - weights - input;
  CHECK(keeps == Approx(weights + 4 * activations));
  CHECK(keeps > four);
}

TEST_CASE("a head with more work than a stage's share gets a stage to itself") {
  const auto parts = split_model(engine(50257), 3);
  CHECK(of(parts) == counts{6, 6, 0});
  CHECK(parts[2].first == 12);
  CHECK(parts[2].flops > parts[1].flops);
}

TEST_CASE(
    "a model's parts add up to the model, plus a copy of a tied embedding in the last stage") {
  for (const bool tied : {true, false}) {
    auto job = engine(4096);
    auto& m = job.model;
    m.tied_head = tied;
    const auto whole = shape_of(m);
    for (std::uint32_t stages = 1; stages <= pieces_of(m); ++stages) {
      const auto parts = split_model(job, stages);
      REQUIRE(parts.size() == stages);
      stage_part sum;
      for (const auto& p : parts) {
        CHECK(p.first == sum.count);
        CHECK((p.count > 0 || p.first == 12));
        sum.count += p.count;
        sum.flops += p.flops;
        sum.parameters += p.parameters;
        sum.activation_bytes += p.activation_bytes;
        CHECK(p.output_bytes == 2.0 * job.model.sequence * job.model.hidden);
      }
      CHECK(sum.count == 12);
      CHECK(sum.flops == whole.forward_flops);
      CHECK(sum.activation_bytes == 6 * (34.0 * 256 * 384 + 5.0 * 6 * 256 * 256));
      CHECK(sum.parameters == whole.parameters + (tied && stages > 1 ? 4096 * 384 : 0));
    }
  }
}

TEST_CASE("if the even cut does not fit the memory, the most even one that fits is taken") {
  const auto job = keeping(engine(4096));
  const auto even = split_model(job, 2);
  CHECK(of(even) == counts{7, 5});
  stage_load memory{1, 4, largest_bytes(even, {1, 4}) * 0.95};
  const auto fits = split_model(job, 2, memory);
  CHECK(of(fits) == counts{6, 6});
  CHECK(largest_bytes(fits, memory) < memory.max_bytes);
  memory.max_bytes = 1;  // nothing does
  CHECK(split_model(job, 2, memory) == even);
}

TEST_CASE("operators are cut by their work, and a study in slots has empty parts") {
  job_spec job;
  auto& m = job.model;
  m.name = "ops";
  for (int i = 0; i < 7; ++i) m.operators.push_back({"op", 7.0 - i, 10, 4.0 + i});
  const auto parts = split_model(job, 3);
  CHECK(of(parts) == counts{1, 2, 4});  // 7, 6 + 5, and 4 + 3 + 2 + 1 without recomputing
  CHECK(parts[1].flops == 6 + 5);
  CHECK(parts[1].parameters == 20);
  CHECK(parts[1].output_bytes == 6);
  CHECK(parts[1].activation_bytes == 5 + 6);
  job_spec study;
  study.slots = slot_costs{};
  CHECK(split_model(study, 4) == std::vector<stage_part>(4));
  CHECK(troupe::test::has_facts(can_split(m, 8).error().text,
                                {"8 stages", "8 operators", "ops", "7"}));
  CHECK(can_split(engine(256).model, 12));
  CHECK(troupe::test::has_facts(can_split(engine(256).model, 13).error().text,
                                {"13 stages", "'engine'", "6"}));
}

TEST_CASE("a long chain is cut quickly, and no part exceeds the smallest possible maximum") {
  random_source random{29};
  chain links(3000);
  for (auto& l : links) l = {random.uniform() + 0.1, random.uniform()};
  constexpr std::uint32_t parts = 300;
  for (const double max_size : {unlimited, 12.0}) {
    const auto cut = cut_evenly(links, parts, max_size, 0.7);
    REQUIRE(cut.size() == parts);
    CHECK(*std::ranges::min_element(cut) >= 1);
    CHECK(std::accumulate(cut.begin(), cut.end(), 0U) == links.size());
    const double max = of(links, cut, max_size, 0.7).largest;
    REQUIRE(max < unlimited);
    // With a little less, ranges from the front that are as long as possible do not suffice.
    double sum = 0, size = 0;
    std::uint32_t used = 1;
    for (const auto& l : links) {
      if (sum + l.weight > max * (1 - 1e-9) || size + l.size > max_size) {
        ++used;
        sum = size = 0;
      }
      sum += l.weight, size += l.size;
    }
    CHECK((used > parts || (used == parts && sum * 0.7 > max * (1 - 1e-9))));
  }
}

TEST_CASE("a model's cut fits the memory exactly when any cut does") {
  random_source random{31};
  int possible = 0, impossible = 0;
  for (int i = 0; i < 300; ++i) {
    auto job = engine(random.chance(0.5) ? 4096 : 50257);
    job.model.layers = 2 + static_cast<std::uint32_t>(random.below(4));
    job.model.tied_head = random.chance(0.5);
    job.pipeline.recompute = random.chance(0.5);
    const auto stages = 2 + static_cast<std::uint32_t>(random.below(2));
    stage_load load{1 + static_cast<std::uint32_t>(random.below(4)),
                    1 + static_cast<std::uint32_t>(random.below(4)), 0, job.pipeline.recompute};
    const model_chain whole{job.model};
    const auto pieces = pieces_of(job.model);
    double min = unlimited;  // of the largest stage, by every cut
    for (std::uint32_t a = 1; a + (stages - 2) <= pieces; ++a)
      for (std::uint32_t b = 1; b <= (stages == 2 ? 1 : pieces - a); ++b) {
        std::vector<stage_part> parts{part_of_stage(whole, job.model, 0, a, 1, false)};
        if (stages == 3) parts.push_back(part_of_stage(whole, job.model, a, b, 1, false));
        const auto done = stages == 3 ? a + b : a;
        parts.push_back(part_of_stage(whole, job.model, done, pieces - done, 1, true));
        min = std::min(min, largest_bytes(parts, load));
      }
    load.max_bytes = min * (random.chance(0.5) ? 1.0001 : 0.999);
    const bool fits = load.max_bytes > min;
    ++(fits ? possible : impossible);
    CAPTURE(i, stages, pieces);
    CHECK((largest_bytes(split_model(job, stages, load), load) <= load.max_bytes * (1 + 1e-9)) ==
          fits);
  }
  CHECK(possible > 100);
  CHECK(impossible > 100);
}

namespace {

/// A model of a program's layers; `glued[i]`: layer i is in one stage with the one before it.
job_spec program_of(const std::vector<double>& flops, const std::vector<bool>& glued) {
  job_spec job;
  job.model.family = "layers";
  job.model.tied_head = false;
  for (std::size_t i = 0; i < flops.size(); ++i)
    job.model.operators.push_back({"layer", flops[i], 10, 8, 100.0 * (i + 1), 40, glued[i]});
  return job;
}

/// The smallest possible FLOPs of the largest stage, by every cut that keeps glued layers together.
/// The last stage counts `last_share` of its own.
double best_largest(const job_spec& job, std::uint32_t stages, double last_share) {
  const auto& all = job.model.operators;
  const auto n = static_cast<std::uint32_t>(all.size());
  double best = unlimited;
  for (std::uint32_t cuts = 0; cuts < 1U << (n - 1); ++cuts) {
    std::uint32_t parts = 1;
    double sum = all[0].flops, largest = 0;
    bool allowed = true;
    for (std::uint32_t i = 1; i < n; ++i) {
      if (cuts >> (i - 1) & 1) {
        allowed &= !all[i].glued;
        ++parts;
        largest = std::max(largest, sum);
        sum = 0;
      }
      sum += all[i].flops;
    }
    if (allowed && parts == stages) best = std::min(best, std::max(largest, sum * last_share));
  }
  return best;
}

}  // namespace

TEST_CASE("a program's layers are cut by their work, and glued ones are not cut apart") {
  std::uint32_t seed = 1;
  const auto next = [&] { return seed = seed * 1664525u + 1013904223u; };
  for (int round = 0; round < 500; ++round) {
    const auto n = 1 + next() % 9;
    std::vector<double> flops;
    std::vector<bool> glued;
    std::uint32_t links = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      flops.push_back(1 + next() % 100);
      glued.push_back(i > 0 && next() % 4 == 0);
      links += !glued.back();
    }
    auto job = program_of(flops, glued);
    job.pipeline.recompute = round % 2 == 0;
    const double last_share = job.pipeline.recompute ? 0.75 : 1;  // it does not recompute
    CHECK(can_split(job.model, links));
    CHECK_FALSE(can_split(job.model, links + 1));
    const auto stages = 1 + next() % links;
    const auto parts = split_model(job, stages, {});
    REQUIRE(parts.size() == stages);
    double largest = 0;
    std::uint32_t first = 0;
    for (const auto& p : parts) {
      CHECK(p.first == first);
      CHECK_FALSE((first > 0 && glued[first]));
      first += p.count;
      largest = std::max(largest, p.flops * (p.last ? last_share : 1));
    }
    CHECK(first == n);
    CHECK(largest == best_largest(job, stages, last_share));
  }
}

TEST_CASE("a stage of a program needs its weights, gradients, state, and what its layers keep") {
  auto job = program_of({1, 1, 1}, {false, false, false});
  job.pipeline.recompute = false;
  const auto parts = split_model(job, 1, {});
  stage_load load{2, 3};
  // A micro-batch of 2 rows at work, and the inputs of three.
  const auto again = memory_of(job, parts[0], load);
  CHECK(again.inputs + again.activations == 2 * 600 + 2 * 3 * 8);
  load.recompute = false;
  const auto m = memory_of(job, parts[0], load);
  CHECK(m.weights == 4 * 30);
  CHECK(m.gradients == 4 * 30);
  CHECK(m.optimizer == 120);
  // 2 rows of 3 micro-batches, of layers that keep 100, 200 and 300 bytes.
  CHECK(m.inputs + m.activations == 2 * 3 * 600);
}
