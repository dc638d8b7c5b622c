// The whole stage: its gradients against finite differences in double precision, and single
// precision against double.
#include <catch2/catch.hpp>
#include <cmath>

#include "gpu/cpu/stage_maths.hpp"
#include "gpu/pipeline.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::gpu::cpu;

namespace {

stage_spec whole(bool tied) {
  auto m = test::small_model(tied);
  m.hidden = 8;
  m.heads = 2;
  m.layers = 2;
  m.sequence = 5;
  m.vocabulary = 11;
  return test::whole_model(m, 2);
}

template <class T>
stage_input<T> input(const stage_spec& s, pool& memory) {
  const auto l = test::lessons(s.model, s.rows, 1, 5)[0];
  stage_input<T> in;
  in.tokens = values_of<std::uint32_t>(l.input, memory);
  in.targets = values_of<std::uint32_t>(l.targets, memory);
  return in;
}

/// Larger than at the start of training, so that no gradient is lost in rounding.
template <class T>
void spread(stage_maths<T>& m) {
  random_source random{9};
  for (auto& w : m.weights()) w = static_cast<T>(w + 0.4 * (random.uniform() - 0.5));
}

template <class T>
std::vector<T> gradients(stage_maths<T>& m, const stage_input<T>& in) {
  stage_memory<T> kept;
  m.forward(in, &kept);
  m.backward(in, kept, nullptr);
  std::vector<T> g(m.own() + m.tied());
  m.copy_gradients(g.data());
  return g;
}

}  // namespace

TEST_CASE("a whole model's gradients are those of finite differences") {
  const bool tied = GENERATE(true, false);
  const auto s = whole(tied);
  stage_maths<double> m{s};
  spread(m);
  const auto in = input<double>(s, m.memory());
  const auto g = gradients(m, in);
  constexpr double h = 1e-5;
  auto w = m.weights();
  for (const auto& p : m.parameters())
    for (std::size_t i = m.position(p); i < m.position(p) + p.values(); ++i) {
      const double before = w[i];
      w[i] = before + h;
      const double above = m.forward(in, nullptr).loss;
      w[i] = before - h;
      const double below = m.forward(in, nullptr).loss;
      w[i] = before;
      INFO(p.name << " " << i - m.position(p));
      CHECK(g[i] == Approx((above - below) / (2 * h)).epsilon(1e-6).margin(1e-8));
    }
}

TEST_CASE("a middle stage has the gradient of its input, too") {
  auto s = whole(true);
  s.has_embedding = s.has_head = false;
  // A layer, an MLP and the attention behind it, an attention alone.
  const auto [first, count] =
      GENERATE(std::pair{2u, 2u}, std::pair{1u, 2u}, std::pair{2u, 1u}, std::pair{3u, 1u});
  s.first_sublayer = first;
  s.sublayers = count;
  stage_maths<double> m{s};
  spread(m);
  random_source random{3};
  const std::size_t n = tokens_of(s) * s.model.hidden;
  const auto x = m.memory().take<double>(n), g = m.memory().take<double>(n);
  for (std::size_t i = 0; i < n; ++i) {
    x.get()[i] = random.uniform() - 0.5;
    g.get()[i] = random.uniform() - 0.5;
  }
  const stage_input<double> in{nullptr, nullptr, x};
  const auto value = [&] {
    const auto out = m.forward(in, nullptr).activation;
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += out.get()[i] * g.get()[i];
    return sum;
  };
  stage_memory<double> kept;
  m.forward(in, &kept);
  const auto gx = m.backward(in, kept, g.get());
  constexpr double h = 1e-5;
  for (std::size_t i = 0; i < n; ++i) {
    const double before = x.get()[i];
    x.get()[i] = before + h;
    const double above = value();
    x.get()[i] = before - h;
    const double below = value();
    x.get()[i] = before;
    CHECK(gx.get()[i] == Approx((above - below) / (2 * h)).epsilon(1e-6).margin(1e-8));
  }
}

TEST_CASE("gradients in single precision agree with those in double precision") {
  auto s = whole(true);
  s.model.sequence = 150;  // more than a tile of queries
  s.model.hidden = 32;
  stage_maths<double> exact{s};
  stage_maths<float> quick{s};
  spread(exact);
  std::copy(exact.weights().begin(), exact.weights().end(), quick.weights().begin());
  const auto in = input<double>(s, exact.memory());
  const auto in_f = input<float>(s, quick.memory());
  CHECK(quick.forward(in_f, nullptr).loss == Approx(exact.forward(in, nullptr).loss).epsilon(1e-6));
  const auto g = gradients(exact, in);
  const auto g_f = gradients(quick, in_f);
  double norm = 0, difference = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    norm += g[i] * g[i];
    difference += (g[i] - g_f[i]) * (g[i] - g_f[i]);
  }
  CHECK(std::sqrt(difference / norm) < 2e-6);
}
