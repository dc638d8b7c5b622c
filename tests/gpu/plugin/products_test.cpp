// The products that plugin.cu asks cuBLASLt for, against a reference in double precision.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/runtime/calls.hpp"
#include "gpu/pipeline.hpp"
#include "gpu/plugin/fake_cuda.hpp"
#include "gpu/plugin/plugin_machines.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::gpu::cuda;
using namespace troupe::test;

namespace {

double at(const operand& o, std::size_t r, std::size_t c) {
  if (o.turned) std::swap(r, c);
  return static_cast<double>(to_float(o.at[r * o.stride + c]));
}

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double slope_of_gelu(double x) {
  constexpr double h = 1e-5;
  return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

/// A product's expected values, row by row and dense; before: gelu's input, where it is stored.
struct reference {
  std::vector<double> out, before;
};

reference expected_of(const product& p) {
  const auto rows = p.a.rows, columns = p.b.columns;
  reference all;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) {
      double v = 0;
      for (std::size_t k = 0; k < p.a.columns; ++k) v += at(p.a, r, k) * at(p.b, k, c);
      const auto i = r * p.stride + c;
      if (p.plus) v += static_cast<double>(p.plus[i]);
      if (p.bias) v += static_cast<double>(p.bias[c]);
      if (p.narrow_bias) v += static_cast<double>(to_float(p.narrow_bias[c]));
      all.before.push_back(v);
      if (p.before) v = gelu(v);
      if (p.slope_at) v *= slope_of_gelu(static_cast<double>(to_float(p.slope_at[i])));
      all.out.push_back(v);
    }
  return all;
}

template <class T>
double distance(const T* made, std::size_t stride, std::size_t columns,
                const std::vector<double>& wanted) {
  double max = 1e-30, difference = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double x = static_cast<double>(to_float(made[i / columns * stride + i % columns]));
    if (!std::isfinite(x)) return INFINITY;
    max = std::max(max, std::abs(wanted[i]));
    difference = std::max(difference, std::abs(x - wanted[i]));
  }
  return difference / max;
}

void finish(machine& m) {
  m.wait(m.record_event());
}

/// Makes a product and compares it.
void check_product(machine& m, const product& p) {
  CAPTURE(p.a.rows, p.b.columns, p.a.columns, p.a.turned, p.b.turned, p.a.stride, p.b.stride,
          p.stride, p.wide != nullptr, p.plus != nullptr, p.before != nullptr,
          p.slope_at != nullptr);
  finish(m);
  const auto wanted = expected_of(p);
  m.multiply(p);
  finish(m);
  const auto n = p.b.columns;
  constexpr double of_floats = 1e-5, of_halves = 1.0 / 128;
  if (p.wide)
    CHECK(distance(p.wide, p.stride, n, wanted.out) < of_floats);
  else
    CHECK(distance(p.narrow, p.stride, n, wanted.out) < of_halves);
  if (p.before) CHECK(distance(p.before, p.stride, n, wanted.before) < of_halves);
}

/// Compares every product of a stage.
class checking_machine final : public kernel_interceptor {
 public:
  using kernel_interceptor::kernel_interceptor;
  void multiply(const product& p) override {
    check_product(behind(), p);
    ++products;
  }
  std::size_t products = 0;

 private:
  void perform(call, std::function<void(machine&)> how) override { how(behind()); }
};

/// Memory of a GPU with random values.
template <class T>
class gpu_values {
 public:
  gpu_values(std::shared_ptr<machine> m, std::size_t n, std::uint64_t seed)
      : m_{std::move(m)}, n_{n}, at_{static_cast<T*>(m_->take(n * sizeof(T)))} {
    random_source random{seed};
    for (std::size_t i = 0; i < n; ++i) store(at_ + i, static_cast<float>(random.uniform() - 0.5));
  }
  ~gpu_values() { m_->give(at_); }
  gpu_values(const gpu_values&) = delete;
  T* get() const { return at_; }
  std::vector<T> copy() const { return {at_, at_ + n_}; }

 private:
  std::shared_ptr<machine> m_;
  std::size_t n_;
  T* at_;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

TEST_CASE("every product of a training step is what the stage asked for") {
  fake_cuda::settings how;
  if (GENERATE(true, false)) how.no_epilogues();
  auto m = small_model(GENERATE(true, false));
  m.layers = 1;
  const auto gpu = std::make_shared<checking_machine>(open_gpu(0).m);
  device d{whole_model(m, 2), gpu};
  for (int step = 0; step < 2; ++step) {  // gradients are added to in the second micro-batch
    const auto l = lessons(m, 2, 1, static_cast<std::uint64_t>(step))[0];
    run(d, gpu::operations::forward{.keep = true, .input = l.input, .targets = l.targets});
    run(d, gpu::operations::backward{});
  }
  CHECK(gpu->products == 2 * 15);
}

TEST_CASE("a product reads and writes matrices with padded rows, and nothing beside them") {
  fake_cuda::settings how;
  if (GENERATE(true, false)) how.no_epilogues();
  const auto gpu = open_gpu(0).m;
  constexpr std::size_t m = 12, n = 40, k = 24, wide = 56;  // rows are `wide` values apart
  const gpu_values<bf16> a{gpu, wide * wide, 1}, b{gpu, wide * wide, 2}, bias{gpu, wide, 3},
      slope{gpu, wide * m, 4}, out{gpu, wide * m, 5}, seen{gpu, wide * m, 6};
  const gpu_values<float> sums{gpu, wide * m, 7}, wide_bias{gpu, wide, 8}, plus{gpu, wide * m, 9};
  const bool turned_a = GENERATE(true, false), turned_b = GENERATE(true, false);
  product p{
      .a = turned_a ? operand{a.get(), k, m, wide}.transposed() : operand{a.get(), m, k, wide},
      .b = turned_b ? operand{b.get(), n, k, wide}.transposed() : operand{b.get(), k, n, wide},
      .stride = wide};
  // Without cuBLASLt's epilogues the project's own kernels follow, which take dense matrices.
  const auto with_epilogue = [&] {
    if (!how.has_epilogues()) p.stride = n;
  };
  const auto beside = [&](const auto& values) {
    auto all = values.copy();
    for (std::size_t r = 0; r < m; ++r)
      std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(r * wide), n,
                  typename decltype(all)::value_type{});
    return all;
  };
  SECTION("in 32 bits") {
    p.wide = sums.get();
    const auto before = beside(sums);
    SECTION("alone") {}
    SECTION("added to what is there") {
      p.plus = p.wide;
    }
    SECTION("with a bias and another matrix") {
      p.plus = plus.get();
      p.bias = wide_bias.get();
      with_epilogue();
    }
    check_product(*gpu, p);
    CHECK((p.stride == n || same_bits(beside(sums), before)));
  }
  SECTION("in 16 bits") {
    p.narrow = out.get();
    const auto before = beside(out), seen_before = beside(seen);
    SECTION("alone") {}
    SECTION("with a bias") {
      p.narrow_bias = bias.get();
      with_epilogue();
    }
    SECTION("with gelu") {
      p.narrow_bias = bias.get();
      p.before = seen.get();
      with_epilogue();
    }
    SECTION("with gelu's slope") {
      p.slope_at = slope.get();
      with_epilogue();
    }
    check_product(*gpu, p);
    if (p.stride == n) return;
    CHECK(same_bits(beside(out), before));
    CHECK(same_bits(beside(seen), seen_before));
  }
}

TEST_CASE("a product takes its bias and gelu's input from each call, not from the first one") {
  const auto gpu = open_gpu(0).m;
  constexpr std::size_t m = 8, n = 16, k = 24;
  const gpu_values<bf16> a{gpu, m * k, 1}, b{gpu, k * n, 2}, bias{gpu, n, 3}, other_bias{gpu, n, 4},
      out{gpu, m * n, 5}, before{gpu, m * n, 6}, other_before{gpu, m * n, 7};
  product p{.a = {a.get(), m, k}, .b = {b.get(), k, n}, .narrow = out.get(), .stride = n};
  p.narrow_bias = bias.get(), p.before = before.get();
  check_product(*gpu, p);
  p.narrow_bias = other_bias.get(), p.before = other_before.get();
  check_product(*gpu, p);
  p.narrow_bias = nullptr, p.before = nullptr;
  p.slope_at = before.get();
  check_product(*gpu, p);
  p.slope_at = other_before.get();
  check_product(*gpu, p);
}

TEST_CASE("a product with all that follows it is one call of cuBLASLt") {
  const auto gpu = open_gpu(0).m;
  constexpr std::size_t m = 8, n = 16, k = 24;
  const gpu_values<bf16> a{gpu, m * k, 1}, b{gpu, k * n, 2}, bias{gpu, n, 3}, before{gpu, m * n, 4},
      out{gpu, m * n, 5};
  const gpu_values<float> sums{gpu, m * n, 6}, plus{gpu, m * n, 7}, wide_bias{gpu, n, 8};
  const operand left{a.get(), m, k}, right{b.get(), k, n};
  const product all[] = {
      {.a = left,
       .b = right,
       .wide = sums.get(),
       .stride = n,
       .plus = plus.get(),
       .bias = wide_bias.get()},
      {.a = left, .b = right, .narrow = out.get(), .stride = n, .narrow_bias = bias.get()},
      {.a = left,
       .b = right,
       .narrow = out.get(),
       .stride = n,
       .narrow_bias = bias.get(),
       .before = before.get()},
      {.a = left, .b = right, .narrow = out.get(), .stride = n, .slope_at = before.get()}};
  for (const auto& p : all) {
    fake_cuda::seen() = {};
    check_product(*gpu, p);
    CHECK(fake_cuda::seen().products == 1);
    CHECK(fake_cuda::seen().launches == 0);
  }
}

TEST_CASE("a product has the same bits each time") {
  const auto gpu = open_gpu(0).m;
  constexpr std::size_t m = 32, n = 64, k = 128;
  const gpu_values<bf16> a{gpu, m * k, 1}, b{gpu, k * n, 2};
  const gpu_values<float> out{gpu, m * n, 3};
  const product p{.a = {a.get(), m, k}, .b = {b.get(), k, n}, .wide = out.get(), .stride = n};
  check_product(*gpu, p);
  const auto first = out.copy();
  for (int again = 0; again < 3; ++again) {
    check_product(*gpu, p);
    CHECK(same_bits(out.copy(), first));
  }
}

TEST_CASE("a product of matrices in memory of the host is refused, as a GPU may") {
  const auto gpu = open_gpu(0).m;
  auto* host = static_cast<bf16*>(gpu->take_host(64 * sizeof(bf16)));
  const gpu_values<bf16> b{gpu, 64, 1}, out{gpu, 64, 2};
  product p{.a = {host, 8, 8}, .b = {b.get(), 8, 8}, .narrow = out.get(), .stride = 8};
  CHECK_THROWS_WITH(gpu->multiply(p), Catch::Contains("CUBLAS_STATUS_INVALID_VALUE"));
  gpu->give_host(host);
}
