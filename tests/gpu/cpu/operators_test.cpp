// Every operator's gradient against finite differences in double precision, and single precision
// against double.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "gpu/cpu/attention.hpp"
#include "gpu/cpu/kernels/kernel_sets.hpp"
#include "gpu/cpu/kernels/kernels.hpp"
#include "gpu/cpu/kernels/matrix.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::gpu::cpu;

namespace {

using values = std::vector<double>;

values random_values(std::size_t n, std::uint64_t seed) {
  random_source random{seed};
  values v(n);
  for (auto& x : v) x = 2 * random.uniform() - 1;
  return v;
}

std::vector<float> narrow(const values& v) {
  return {v.begin(), v.end()};
}

double dot(const values& a, const values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Compares a gradient with (f(x + h) - f(x - h)) / 2h, value by value.
void check_gradient(values& x, const values& gradient, const std::function<double()>& f) {
  REQUIRE(x.size() == gradient.size());
  constexpr double h = 1e-5;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + h;
    const double above = f();
    x[i] = before - h;
    const double below = f();
    x[i] = before;
    INFO("value " << i);
    CHECK(gradient[i] == Approx((above - below) / (2 * h)).epsilon(1e-6).margin(1e-8));
  }
}

const kernels<double>& k = double_kernels();

}  // namespace

TEST_CASE("layer norm's gradients are those of finite differences") {
  constexpr std::size_t rows = 3, n = 7;
  auto x = random_values(rows * n, 1), w = random_values(n, 2), b = random_values(n, 3);
  const auto g = random_values(rows * n, 4);
  values out(rows * n), means(rows), inverses(rows);
  const auto f = [&] {
    k.layer_norm(x.data(), w.data(), b.data(), rows, n, out.data(), means.data(), inverses.data());
    return dot(out, g);
  };
  f();
  values gx(rows * n), gw(n), gb(n);
  k.layer_norm_backward(g.data(), x.data(), w.data(), means.data(), inverses.data(), rows, n,
                        gx.data(), gw.data(), gb.data());
  check_gradient(x, gx, f);
  check_gradient(w, gw, f);
  check_gradient(b, gb, f);
}

TEST_CASE("gelu with a bias has the gradients of finite differences") {
  constexpr std::size_t rows = 3, n = 11;
  auto x = random_values(rows * n, 1), b = random_values(n, 2);
  for (auto& v : x) v *= 4;
  const auto g = random_values(rows * n, 3);
  values sum(rows * n), out(rows * n);
  const auto f = [&] {
    sum = x;
    k.bias_gelu(sum.data(), b.data(), rows, n, out.data());
    return dot(out, g);
  };
  f();
  auto gx = g;
  values gb(n);
  k.gelu_backward(gx.data(), sum.data(), rows, n, gb.data());
  check_gradient(x, gx, f);
  check_gradient(b, gb, f);
  CHECK(out[0] == Approx(sum[0] / 2 *
                         (1 + std::tanh(std::sqrt(2 / M_PI) *
                                        (sum[0] + 0.044715 * sum[0] * sum[0] * sum[0])))));
}

TEST_CASE("cross entropy's gradient is that of finite differences") {
  constexpr std::size_t rows = 3, n = 9;
  auto x = random_values(rows * n, 1);
  const std::vector<std::uint32_t> targets{2, 8, 0};
  const double scale = 0.25;
  const auto f = [&] {
    auto copy = x;
    return scale * k.cross_entropy(copy.data(), targets.data(), rows, n, scale);
  };
  auto gx = x;
  k.cross_entropy(gx.data(), targets.data(), rows, n, scale);
  check_gradient(x, gx, f);
}

TEST_CASE("embedding's gradients are those of finite differences") {
  constexpr std::size_t rows = 2, sequence = 3, n = 4, words = 5;
  auto w = random_values(words * n, 1), p = random_values(sequence * n, 2);
  const auto g = random_values(rows * sequence * n, 3);
  const std::vector<std::uint32_t> tokens{4, 1, 1, 0, 4, 2};
  values out(rows * sequence * n);
  const auto f = [&] {
    k.embed(tokens.data(), rows, sequence, n, w.data(), p.data(), out.data());
    return dot(out, g);
  };
  values gw(w.size()), gp(p.size());
  k.embed_backward(tokens.data(), rows, sequence, n, g.data(), gw.data(), gp.data());
  check_gradient(w, gw, f);
  check_gradient(p, gp, f);
}

TEST_CASE("causal attention's gradients are those of finite differences") {
  constexpr std::size_t rows = 2, sequence = 5, hidden = 6, heads = 2;
  pool memory;
  attention<double> a{rows, sequence, hidden, heads, memory};
  auto qkv = random_values(rows * sequence * 3 * hidden, 1);
  for (auto& v : qkv) v *= 2;
  const auto g = random_values(rows * sequence * hidden, 2);
  values out(g.size()), sums(a.log_sums());
  const auto f = [&] {
    a.forward(qkv.data(), out.data(), sums.data());
    return dot(out, g);
  };
  f();
  values gx(qkv.size());
  a.backward(g.data(), qkv.data(), out.data(), sums.data(), gx.data());
  check_gradient(qkv, gx, f);
}

TEST_CASE("attention is causal") {
  constexpr std::size_t sequence = 200, hidden = 8;  // two tiles of queries
  pool memory;
  attention<float> a{1, sequence, hidden, 2, memory};
  auto qkv = narrow(random_values(sequence * 3 * hidden, 1));
  std::vector<float> before(sequence * hidden), after(before), sums(a.log_sums());
  a.forward(qkv.data(), before.data(), sums.data());
  constexpr std::size_t changed = 150;
  for (std::size_t i = changed * 3 * hidden; i < qkv.size(); ++i) qkv[i] += 1;
  a.forward(qkv.data(), after.data(), sums.data());
  const auto at = static_cast<std::ptrdiff_t>(changed * hidden);
  CHECK(std::equal(before.begin(), before.begin() + at, after.begin()));
  CHECK_FALSE(std::equal(before.begin() + at, before.end(), after.begin() + at));
}

TEST_CASE("attention over several tiles agrees with double precision, forward and backward") {
  constexpr std::size_t rows = 2, sequence = 300, hidden = 24, heads = 3;
  pool memory;
  attention<double> exact{rows, sequence, hidden, heads, memory};
  attention<float> quick{rows, sequence, hidden, heads, memory};
  const auto qkv = random_values(rows * sequence * 3 * hidden, 1),
             g = random_values(rows * sequence * hidden, 2);
  values out(g.size()), sums(exact.log_sums()), gx(qkv.size());
  exact.forward(qkv.data(), out.data(), sums.data());
  exact.backward(g.data(), qkv.data(), out.data(), sums.data(), gx.data());
  const auto qkv_f = narrow(qkv), g_f = narrow(g);
  std::vector<float> out_f(g.size()), sums_f(sums.size()), gx_f(qkv.size());
  quick.forward(qkv_f.data(), out_f.data(), sums_f.data());
  quick.backward(g_f.data(), qkv_f.data(), out_f.data(), sums_f.data(), gx_f.data());
  for (std::size_t i = 0; i < out.size(); ++i) CHECK(out_f[i] == Approx(out[i]).margin(2e-6));
  for (std::size_t i = 0; i < gx.size(); ++i) CHECK(gx_f[i] == Approx(gx[i]).margin(5e-6));
}

TEST_CASE("AdamW matches its paper") {
  const adamw_step how{.scale = 0.5,
                       .learning_rate = 0.01,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .epsilon = 1e-8,
                       .decay = 0.1,
                       .correction1 = 1 - 0.9 * 0.9,
                       .correction2 = 1 - 0.95 * 0.95};
  values w{1.5}, m{0.2}, v{0.3};
  const values g{4};
  CHECK(k.adamw(w.data(), m.data(), v.data(), g.data(), 1, how) == Approx(4));
  CHECK(m[0] == Approx(0.9 * 0.2 + 0.1 * 2));
  CHECK(v[0] == Approx(0.95 * 0.3 + 0.05 * 4));
  const double moved = m[0] / how.correction1 / (std::sqrt(v[0] / how.correction2) + 1e-8);
  CHECK(w[0] == Approx(1.5 - 0.01 * (moved + 0.1 * 1.5)));
}

TEST_CASE("AdamW has the same bits with every instruction set") {
  const adamw_step how{.scale = 0.37,
                       .learning_rate = 0.003,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .epsilon = 1e-8,
                       .decay = 0.1,
                       .correction1 = 1 - std::pow(0.9, 7),
                       .correction2 = 1 - std::pow(0.95, 7)};
  constexpr std::size_t n = 3 * 4096 + 21;  // whole runs, and one that no vector divides
  const auto start = narrow(random_values(n, 1)), gradients = narrow(random_values(n, 2));
  struct state {
    std::vector<float> w, m, v;
    double norm = 0;

    bool operator==(const state&) const = default;
  };
  std::vector<state> made;
  for (const auto* set : usable_float_kernels()) {
    state s{start, std::vector<float>(n), std::vector<float>(n)};
    for (int i = 0; i < 50; ++i)
      s.norm = set->adamw(s.w.data(), s.m.data(), s.v.data(), gradients.data(), n, how);
    made.push_back(std::move(s));
    CAPTURE(set->name);
    CHECK(made.back() == made.front());
  }
}

TEST_CASE("products of matrices, transposed or not, agree in single precision") {
  const bool turn_a = GENERATE(false, true), turn_b = GENERATE(false, true);
  const auto how = GENERATE(into::set, into::add);
  constexpr std::size_t m = 13, n = 17, p = 19;
  const auto a = random_values(m * p, 1), b = random_values(p * n, 2), c = random_values(m * n, 3);
  const auto view = [](auto& v, std::size_t r, std::size_t s, bool turn) {
    return turn ? matrix{v.data(), s, r}.transposed() : matrix{v.data(), r, s};
  };
  auto exact = c;
  multiply(view(a, m, p, turn_a), view(b, p, n, turn_b), matrix{exact.data(), m, n}, how);
  const auto a_f = narrow(a), b_f = narrow(b);
  auto quick = narrow(c);
  multiply(view(a_f, m, p, turn_a), view(b_f, p, n, turn_b), matrix{quick.data(), m, n}, how);
  for (std::size_t i = 0; i < exact.size(); ++i) CHECK(quick[i] == Approx(exact[i]).margin(1e-5));
}

TEST_CASE("every instruction set's kernels agree with double precision") {
  const auto* fast = GENERATE(&float_kernels(), &plain_kernels);
  CAPTURE(fast->name);
  constexpr std::size_t rows = 5, n = 67;
  auto x = random_values(rows * n, 1);
  for (auto& v : x) v *= 6;
  const auto b = random_values(n, 2), g = random_values(rows * n, 3);
  const auto near = [](const auto& quick, const values& exact, double margin) {
    for (std::size_t i = 0; i < exact.size(); ++i)
      CHECK(quick[i] == Approx(exact[i]).margin(margin));
  };
  auto before = x;
  auto before_f = narrow(x);
  values after(x.size());
  std::vector<float> after_f(x.size());
  const auto b_f = narrow(b);
  k.bias_gelu(before.data(), b.data(), rows, n, after.data());
  fast->bias_gelu(before_f.data(), b_f.data(), rows, n, after_f.data());
  near(after_f, after, 2e-6);
  auto slope = g;
  auto slope_f = narrow(g);
  values sum(n);
  std::vector<float> sum_f(n);
  k.gelu_backward(slope.data(), before.data(), rows, n, sum.data());
  fast->gelu_backward(slope_f.data(), before_f.data(), rows, n, sum_f.data());
  near(slope_f, slope, 2e-6);
  near(sum_f, sum, 5e-6);
  const std::vector<std::uint32_t> targets{0, 66, 5, 6, 7};
  auto logits = x;
  auto logits_f = narrow(x);
  CHECK(fast->cross_entropy(logits_f.data(), targets.data(), rows, n, 1.0f) ==
        Approx(k.cross_entropy(logits.data(), targets.data(), rows, n, 1.0)).epsilon(1e-6));
  near(logits_f, logits, 1e-6);
  values means(rows), inverses(rows);
  std::vector<float> means_f(rows), inverses_f(rows);
  const auto x_f = narrow(x);
  k.layer_norm(x.data(), b.data(), b.data(), rows, n, after.data(), means.data(), inverses.data());
  fast->layer_norm(x_f.data(), b_f.data(), b_f.data(), rows, n, after_f.data(), means_f.data(),
                   inverses_f.data());
  near(after_f, after, 2e-6);
}

TEST_CASE("exponentials outside the range of floats do no harm") {
  std::vector<float> logits{1000, -1000, 0, 500};
  const std::uint32_t target = 1;
  const double loss = float_kernels().cross_entropy(logits.data(), &target, 1, 4, 1.0f);
  CHECK(loss == Approx(2000));
  CHECK(logits[0] == 1);
  CHECK(logits[1] == -1);
}
