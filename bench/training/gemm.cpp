#include "training/gemm.hpp"

#include <algorithm>

#include "gpu/cpu/kernels/matrix.hpp"
#include "harness/clock.hpp"
#include "messages/base/random.hpp"

namespace troupe::bench {

namespace {

using gpu::cpu::into;
using gpu::cpu::matrix;

double thread_s() {
  return clock_s(CLOCK_THREAD_CPUTIME_ID);
}

template <int width, class wide>
__attribute__((always_inline)) inline double chains(float* out) {
  constexpr int count = 12;  // independent, so that the latency is hidden
  constexpr long rounds = 4'000'000;
  wide a[count];
  for (int i = 0; i < count; ++i) a[i] = wide{} + static_cast<float>(i);
  const wide x = wide{} + 0.999f, y = wide{} + 1e-3f;
  const double begin = thread_s();
  for (long r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < count; ++i) a[i] = a[i] * x + y;
  }
  const double took = thread_s() - begin;
  wide sum{};
  for (int i = 0; i < count; ++i) sum += a[i];
  *out = sum[0];
  return static_cast<double>(rounds) * count * width * 2 / took / 1e9;
}

typedef float wide_16 __attribute__((vector_size(64)));
typedef float wide_8 __attribute__((vector_size(32)));
typedef float wide_4 __attribute__((vector_size(16)));

#ifdef __x86_64__
__attribute__((target("avx512f"), noinline)) double chains_16(float* out) {
  return chains<16, wide_16>(out);
}
__attribute__((target("avx2,fma"), noinline)) double chains_8(float* out) {
  return chains<8, wide_8>(out);
}
#endif

double one_peak() {
  float used = 0;
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return chains_16(&used);
  if (__builtin_cpu_supports("fma")) return chains_8(&used);
#endif
  return chains<4, wide_4>(&used);
}

std::vector<float> values(std::size_t n) {
  random_source random{n};
  std::vector<float> v(n);
  for (auto& x : v) x = static_cast<float>(random.uniform() - 0.5);
  return v;
}

/// turned_a: a lies as its transpose, as in a weight's gradient.
double speed(std::size_t m, std::size_t n, std::size_t k, bool turned_a, bool turned_b) {
  const auto a = values(m * k), b = values(k * n);
  std::vector<float> c(m * n);
  const auto first = turned_a ? matrix{a.data(), k, m}.transposed() : matrix{a.data(), m, k};
  const auto second = turned_b ? matrix{b.data(), n, k}.transposed() : matrix{b.data(), k, n};
  const double flops = 2.0 * static_cast<double>(m * n * k);
  const int times = static_cast<int>(1e9 / flops) + 1;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double begin = thread_s();
    for (int i = 0; i < times; ++i) multiply(first, second, matrix{c.data(), m, n}, into::add);
    best = std::max(best, flops * times / (thread_s() - begin) / 1e9);
  }
  return best;
}

}  // namespace

double multiply_add_peak() {
  double best = 0;
  for (int i = 0; i < 5; ++i) best = std::max(best, one_peak());
  return best;
}

std::vector<product_speed> product_speeds(std::size_t tokens, std::size_t hidden,
                                          std::size_t vocabulary, std::size_t layers) {
  gpu::cpu::prepare_thread();
  struct linear {
    const char* name;
    std::size_t in, out, times;
  };
  std::vector<product_speed> all;
  double operations = 0, seconds = 0;
  const auto add = [&](std::string what, std::size_t m, std::size_t n, std::size_t k, bool turned_a,
                       bool turned_b, std::size_t times) {
    all.push_back({std::move(what), m, n, k, speed(m, n, k, turned_a, turned_b)});
    const double f = 2e-9 * static_cast<double>(m * n * k * times);
    operations += f;
    seconds += f / all.back().gflops;
  };
  for (const auto& l :
       {linear{"c_attn", hidden, 3 * hidden, layers}, linear{"attn.c_proj", hidden, hidden, layers},
        linear{"c_fc", hidden, 4 * hidden, layers},
        linear{"mlp.c_proj", 4 * hidden, hidden, layers}}) {
    const std::string name = l.name;
    add(name + " forward", tokens, l.out, l.in, false, false, l.times);
    add(name + " input's gradient", tokens, l.in, l.out, false, true, l.times);
    add(name + " weight's gradient", l.in, l.out, tokens, true, false, l.times);
  }
  add("head forward", tokens, vocabulary, hidden, false, true, 1);
  add("head input's gradient", tokens, hidden, vocabulary, false, false, 1);
  add("head weight's gradient", vocabulary, hidden, tokens, true, false, 1);
  all.push_back({"all, by their operations", 0, 0, 0, operations / seconds});
  return all;
}

}  // namespace troupe::bench
