// Digests of weights: replicas of a stage have equal ones, whatever their processors are.
#include "gpu/model/digest.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <optional>

#include "gpu/cpu/device.hpp"
#include "gpu/pipeline.hpp"

using namespace troupe;
using namespace troupe::test;
using gpu::cpu::kernels;

namespace {

namespace step = gpu::operations;

std::uint64_t digest(gpu::stage_device& d) {
  return run(d, step::digest{}).weights;
}

/// AdamW as a compiler may write it that contracts products and sums.
double fused_adamw(float* values, float* first_moments, float* second_moments,
                   const float* gradients, std::size_t n, const gpu::cpu::adamw_step& how) {
  const auto beta1 = static_cast<float>(how.beta1), beta2 = static_cast<float>(how.beta2),
             rate = static_cast<float>(how.learning_rate / how.correction1),
             correct = static_cast<float>(1 / how.correction2),
             shrink = static_cast<float>(1 - how.learning_rate * how.decay);
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradients[i] * static_cast<float>(how.scale);
    first_moments[i] = std::fma(beta1, first_moments[i], (1 - beta1) * g);
    second_moments[i] = std::fma(beta2, second_moments[i], (1 - beta2) * g * g);
    const float step = rate * first_moments[i] /
                       (std::sqrt(second_moments[i] * correct) + static_cast<float>(how.epsilon));
    values[i] = std::fma(values[i], shrink, -step);
  }
  return 0;
}

std::vector<float> sum_of(const std::vector<float>& a, const std::vector<float>& b) {
  auto sum = a;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  return sum;
}

/// Two replicas with kernels of their own learn from a micro-batch each, and update by the sum of
/// their gradients. After how many of these iterations do their weights differ? None: they do not.
std::optional<int> first_difference(const kernels<float>& one, const kernels<float>& other,
                                    int iterations) {
  const auto m = small_model();
  const auto spec = whole_model(m, 2);
  gpu::cpu::device a{spec, nullptr, nullptr, one}, b{spec, nullptr, nullptr, other};
  for (int i = 1; i <= iterations; ++i) {
    const auto all = lessons(m, 2, 2, 100 + static_cast<std::uint64_t>(i));
    std::vector<std::vector<float>> own, tied;
    for (std::size_t r = 0; r < 2; ++r) {
      auto& d = r == 0 ? a : b;
      run(d, step::forward{0, true, all[r].input, all[r].targets});
      run(d, step::backward{0, {}});
      const auto g = run(d, step::gradients{});
      own.push_back(floats(g.own));
      tied.push_back(floats(g.tied));
    }
    const gpu::own_and_tied sums{payload{sum_of(own[0], own[1])},
                                 payload{sum_of(tied[0], tied[1])}};
    for (auto* d : {&a, &b}) run(*d, step::update{sums, 0.5});
    if (digest(a) != digest(b)) return i;
  }
  return {};
}

}  // namespace

TEST_CASE("a digest is that of all weights, and changes with them") {
  const auto kind = GENERATE(from_range(devices()));
  CAPTURE(kind.name);
  const auto m = small_model();
  const auto spec = whole_model(m);
  const auto one = kind.make(spec), same = kind.make(spec);
  REQUIRE(one);
  REQUIRE(same);
  const auto before = digest(**one);
  CHECK(before == digest(**same));
  CHECK(before == gpu::digest_of(run(**one, step::weights{})).weights);
  const auto l = lessons(m, 1, 1, 7)[0];
  run(**one, step::forward{0, true, l.input, l.targets});
  CHECK(digest(**one) == before);
  run(**one, step::backward{0, {}});
  run(**one, step::update{});
  CHECK(digest(**one) != before);
  CHECK(digest(**one) == gpu::digest_of(run(**one, step::weights{})).weights);
}

TEST_CASE("devices that share a stage have the digest of one device") {
  auto m = small_model();
  m.heads = 2;
  m.hidden = 16;
  const auto spec = whole_model(m);
  const auto one = gpu::make_cpu_device(spec), two = gpu::make_shared_cpu_device(spec, 2);
  REQUIRE(one);
  REQUIRE(two);
  CHECK(digest(**one) == digest(**two));
}

TEST_CASE("replicas with the kernels of unlike processors keep equal weights") {
  const auto& sets = gpu::cpu::usable_float_kernels();
  for (const auto* set : sets) {
    CAPTURE(set->name);
    CHECK(first_difference(*sets.front(), *set, 200) == std::nullopt);
  }
}

TEST_CASE("the digest finds a replica whose AdamW uses fused multiply-adds") {
  auto contracted = *gpu::cpu::usable_float_kernels().front();
  contracted.adamw = fused_adamw;
  const auto found = first_difference(*gpu::cpu::usable_float_kernels().front(), contracted, 50);
  REQUIRE(found);
  CHECK(*found <= 50);
}
