// A model trains identically in any number of stages, bit for bit.
#include <catch2/catch.hpp>
#include <cmath>

#include "gpu/pipeline.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

using sublayers = std::vector<std::uint32_t>;

/// One stage's gradients behind another's, in the order of a single stage's.
std::vector<float> joined(const pipeline::iteration& i) {
  std::vector<float> all;
  for (const auto& own : i.own) all.insert(all.end(), own.begin(), own.end());
  all.insert(all.end(), i.tied.begin(), i.tied.end());
  return all;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double max = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    max = std::max(max, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return max;
}

void same(const tested_device& kind, const std::vector<float>& a, const std::vector<float>& b) {
  if (kind.tolerance == 0)
    CHECK(a == b);
  else
    CHECK(largest_difference(a, b) <= kind.tolerance);
}

void same_learning(const tested_device& kind, pipeline& one, pipeline& several, const model& m,
                   std::uint64_t iterations) {
  for (std::uint64_t i = 0; i < iterations; ++i) {
    const auto all = lessons(m, 2, 3, 100 + i);
    const auto a = one.learn(all), b = several.learn(all);
    if (kind.tolerance == 0)
      CHECK(a.losses == b.losses);
    else
      for (std::size_t j = 0; j < a.losses.size(); ++j)
        CHECK(a.losses[j] == Approx(b.losses[j]).epsilon(kind.tolerance));
    same(kind, joined(a), joined(b));
    // Stages sum their parts of the norm in double precision, one after another.
    CHECK(a.squared_norm == Approx(b.squared_norm).epsilon(std::max(1e-12, kind.tolerance)));
    CHECK(a.squared_norm > 0);
  }
  same(kind, one.weights(), several.weights());
}

}  // namespace

TEST_CASE("any cut into stages, even inside layers, trains like one stage") {
  const auto kind = GENERATE(from_range(devices()));
  const bool tied = GENERATE(true, false);
  const auto split =
      GENERATE(sublayers{6, 6}, sublayers{2, 10}, sublayers{4, 4, 4}, sublayers{0, 10, 2},
               sublayers{2, 2, 2, 2, 2, 2}, sublayers{8, 4, 0}, sublayers{7, 5}, sublayers{1, 11},
               sublayers{11, 1}, sublayers{3, 1, 1, 7}, sublayers{5, 7, 0},
               sublayers{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  CAPTURE(kind.name, tied, split);
  const auto m = small_model(tied);
  pipeline one{kind, m, {12}}, several{kind, m, split};
  same_learning(kind, one, several, m, 3);
}

TEST_CASE("recomputing activations gives the same results as keeping them") {
  const auto kind = GENERATE(from_range(devices()));
  const auto split = GENERATE(sublayers{12}, sublayers{4, 8}, sublayers{3, 4, 5});
  const auto m = small_model();
  pipeline kept{kind, m, split}, recomputed{kind, m, split, {.keep = false}};
  same_learning(kind, kept, recomputed, m, 2);
}

TEST_CASE("the same seed gives the same run, and another seed another run") {
  const auto kind = GENERATE(from_range(devices()));
  const auto m = small_model();
  pipeline a{kind, m, {12}}, b{kind, m, {12}};
  CHECK(a.weights() == b.weights());
  same_learning(kind, a, b, m, 2);
  gpu::stage_spec s = a.specs[0];
  s.seed = 2;
  auto other = kind.make(s);
  REQUIRE(other);
  CHECK(floats(run(**other, gpu::operations::weights{}).own) !=
        floats(run(**kind.make(a.specs[0]), gpu::operations::weights{}).own));
}

TEST_CASE("the loss falls on repeated text") {
  const auto kind = GENERATE(from_range(devices()));
  const auto m = small_model();
  pipeline p{kind, m, {6, 6}, {.learning_rate = 3e-3}};
  const auto all = lessons(m, 2, 2, 7);
  const auto first = p.learn(all).losses[0];
  CHECK(first == Approx(std::log(37.0)).epsilon(0.05));  // it knows nothing yet
  double last = first;
  for (int i = 0; i < 60; ++i) last = p.learn(all).losses[0];
  CHECK(last < first / 2);
}

TEST_CASE("micro-batches may go forward together and back in another order") {
  const auto kind = GENERATE(from_range(devices()));
  const auto m = small_model();
  const auto all = lessons(m, 2, 2, 11);
  namespace step = gpu::operations;
  std::vector<std::vector<float>> sums;
  for (const std::vector<std::uint32_t>& order :
       {std::vector<std::uint32_t>{0, 1}, std::vector<std::uint32_t>{1, 0}}) {
    pipeline p{kind, m, {12}};
    auto d = kind.make(p.specs[0]);
    REQUIRE(d);
    for (std::uint32_t i : {0u, 1u})
      run(**d,
          step::forward{
              .microbatch = i, .keep = true, .input = all[i].input, .targets = all[i].targets});
    for (const auto i : order) run(**d, step::backward{.microbatch = i});
    sums.push_back(floats(run(**d, step::gradients{}).own));
  }
  CHECK(largest_difference(sums[0], sums[1]) < 1e-5);
}
