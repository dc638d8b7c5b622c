// The CUDA device's kernels, run on emulated threads and on a GPU if there is one, against the
// CPU's in double precision. What they read in 16 bits the reference reads too, so that only their
// own rounding is left.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <set>

#include "gpu/cpu/attention.hpp"
#include "gpu/cpu/kernels/kernels.hpp"
#include "gpu/cuda/host/device.hpp"
#include "gpu/emulation/emulated_machine.hpp"
#include "gpu/emulation/emulation.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace troupe::gpu::cuda;

namespace {

using values = std::vector<double>;
const auto& exact = gpu::cpu::double_kernels();
constexpr double rounding = 1.0 / 256;  // of 16 bits: half of the last place

/// The machines on which the kernels are tested: the emulated one, and a GPU if there is one.
const std::vector<std::shared_ptr<machine>>& machines() {
  static const auto all = [] {
    std::vector<std::shared_ptr<machine>> found{emulated_machine()};
    if (auto real = open_machine_here(0)) found.push_back(std::move(*real));
    return found;
  }();
  return all;
}
std::shared_ptr<machine> current = machines()[0];

/// Memory of the current machine with its copy on the host.
struct mirrored {
  mirrored(std::size_t n_bytes) : bytes{n_bytes}, m{current} {
    m->enter();
    on_gpu = m->take(bytes);
    on_host = m->take_host(bytes);
    all.insert(this);
  }
  ~mirrored() {
    all.erase(this);
    m->give(on_gpu);
    m->give_host(on_host);
  }
  mirrored(const mirrored&) = delete;

  const std::size_t bytes;
  const std::shared_ptr<machine> m;
  void *on_gpu, *on_host;
  static inline std::set<mirrored*> all;
};

/// Asks the current machine for one thing, with all values there, and waits until they are back.
struct request {
  explicit request(machine* with) : m{with} {
    for (const auto* v : mirrored::all) m->copy_in(v->on_gpu, v->on_host, v->bytes);
  }
  ~request() {
    for (const auto* v : mirrored::all) m->copy_out(v->on_host, v->on_gpu, v->bytes);
    m->wait(m->record_event());
  }
  request(const request&) = delete;
  machine* operator->() const { return m; }
  machine* m;
};
request on() {
  current->enter();
  return request{current.get()};
}

/// Values in a GPU's memory, which the test sees between requests. `data`: for the machine; `host`:
/// for the test.
template <class T>
class array {
 public:
  explicit array(std::size_t n, T first = {}) : n_{n}, memory_{n * sizeof(T)} {
    std::fill_n(host(), n, first);
  }
  array(std::initializer_list<T> v) : array(v.size()) { std::copy(v.begin(), v.end(), host()); }
  array(const array& other) : array(other.n_) { *this = other; }
  array& operator=(const array& other) {
    REQUIRE(n_ == other.n_);
    std::copy_n(other.host(), n_, host());
    return *this;
  }
  T* data() const { return static_cast<T*>(memory_.on_gpu); }
  T* host() const { return static_cast<T*>(memory_.on_host); }
  T& operator[](std::size_t i) const { return host()[i]; }
  std::size_t size() const { return n_; }

 private:
  std::size_t n_;
  mirrored memory_;
};
using words = array<std::uint32_t>;
using floats = array<float>;
using halves = array<bf16>;

values random_values(std::size_t n, std::uint64_t seed, double width = 1) {
  random_source random{seed};
  values v(n);
  for (auto& x : v) x = width * (2 * random.uniform() - 1);
  return v;
}
/// Rounds v too, so that both sides read the same.
floats wide(values& v) {
  floats f(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = f[i] = static_cast<float>(v[i]);
  return f;
}
halves narrow(values& v) {
  halves h(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) {
    h[i] = to_bf16(static_cast<float>(v[i]));
    v[i] = static_cast<double>(to_float(h[i]));
  }
  return h;
}

/// Largest difference, as a fraction of the largest value.
template <class T>
double distance(array<T>& a, const values& b) {
  REQUIRE(a.size() == b.size());
  double max = 1e-30, difference = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double x = static_cast<double>(to_float(a[i]));
    if (!std::isfinite(x)) return x;
    max = std::max(max, std::abs(b[i]));
    difference = std::max(difference, std::abs(x - b[i]));
  }
  return difference / max;
}

/// Runs `f` with each order of threads, copies and blocks; what it returns must be the same bits.
template <class F>
auto in_any_order(F f) {
  set_kernel_schedule({});
  auto first = f();
  for (const auto& s : kernel_schedules()) {
    set_kernel_schedule(s);
    const auto other = f();
    CHECK(std::memcmp(first.host(), other.host(), first.size() * sizeof(first[0])) == 0);
  }
  set_kernel_schedule({});
  return first;
}

}  // namespace

TEST_CASE("conversion to 16-bit floats rounds to nearest, ties to even") {
  CHECK(to_bf16(1.0f).bits == 0x3f80);
  CHECK(to_bf16(1.0f + 1.0f / 256).bits == 0x3f80);  // a tie
  CHECK(to_bf16(1.0f + 3.0f / 256).bits == 0x3f82);  // a tie
  CHECK(to_bf16(1.0f + 1.0f / 255).bits == 0x3f81);
  CHECK(to_bf16(-0.0f).bits == 0x8000);
  CHECK(std::isnan(to_float(to_bf16(NAN))));
  CHECK(to_float(to_bf16(INFINITY)) == INFINITY);
}

TEST_CASE("the CUDA kernel for layer norm agrees with double precision, forward and backward") {
  current = GENERATE(from_range(machines()));
  CAPTURE(current->name());
  const auto [rows, n] = GENERATE(
      table<std::size_t, std::size_t>({{1, 8}, {3, 24}, {9, 128}, {13, 136}, {70, 264}, {5, 768}}));
  CAPTURE(rows, n);
  auto x = random_values(rows * n, 1, 2), w = random_values(n, 2), b = random_values(n, 3),
       g = random_values(rows * n, 4), before = random_values(rows * n, 5);
  auto xf = wide(x), wf = wide(w), bf = wide(b), start = wide(before);
  auto gh = narrow(g);
  values out(rows * n), means(rows), inverses(rows), gw(n, 0.5), gb(n, -0.5);
  exact.layer_norm(x.data(), w.data(), b.data(), rows, n, out.data(), means.data(),
                   inverses.data());
  auto gx = before;
  exact.layer_norm_backward(g.data(), x.data(), w.data(), means.data(), inverses.data(), rows, n,
                            gx.data(), gw.data(), gb.data());

  floats means_f(rows), inverses_f(rows);
  auto made = in_any_order([&] {
    halves h(rows * n);
    on()->layer_norm(xf.data(), wf.data(), bf.data(), rows, n, h.data(), means_f.data(),
                     inverses_f.data());
    return h;
  });
  CHECK(distance(made, out) < rounding);
  CHECK(distance(means_f, means) < 1e-5);
  CHECK(distance(inverses_f, inverses) < 1e-5);
  floats gw_f(n), gb_f(n), scratch(norm_scratch(rows, n));
  halves rounded(rows * n);
  auto back = in_any_order([&] {
    auto gradient = start;
    gw_f = floats(n, 0.5f);
    gb_f = floats(n, -0.5f);
    on()->layer_norm_backward(gh.data(), xf.data(), wf.data(), means_f.data(), inverses_f.data(),
                              rows, n, true, gradient.data(), rounded.data(), gw_f.data(),
                              gb_f.data(), scratch.data());
    return gradient;
  });
  CHECK(distance(back, gx) < 1e-5);
  CHECK(distance(rounded, gx) < rounding);
  CHECK(distance(gw_f, gw) < 1e-5);
  CHECK(distance(gb_f, gb) < 1e-5);
  on()->layer_norm_backward(gh.data(), xf.data(), wf.data(), means_f.data(), inverses_f.data(),
                            rows, n, false, back.data(), rounded.data(), gw_f.data(), gb_f.data(),
                            scratch.data());
  for (std::size_t i = 0; i < gx.size(); ++i) gx[i] -= before[i];
  CHECK(distance(back, gx) < 1e-5);
}

TEST_CASE("the CUDA kernels for sums over rows agree with double precision") {
  current = GENERATE(from_range(machines()));
  CAPTURE(current->name());
  const auto [rows, n] = GENERATE(
      table<std::size_t, std::size_t>({{1, 8}, {63, 24}, {65, 128}, {200, 136}, {5000, 8}}));
  CAPTURE(rows, n);
  auto x = random_values(rows * n, 1), y = x;
  auto xf = wide(x);
  auto yh = narrow(y);
  values sum(n, 1), sum_y(n, 1);
  exact.sum_rows(x.data(), rows, n, sum.data());
  exact.sum_rows(y.data(), rows, n, sum_y.data());
  floats scratch(norm_scratch(rows, n));
  auto made = in_any_order([&] {
    floats s(n, 1.0f);
    on()->sum_rows(xf.data(), rows, n, s.data(), scratch.data());
    return s;
  });
  CHECK(distance(made, sum) < 2e-6);
  floats s(n, 1.0f);
  on()->sum_rows(yh.data(), rows, n, s.data(), scratch.data());
  CHECK(distance(s, sum_y) < 2e-6);
}

TEST_CASE("the CUDA kernels for biases and gelu agree with double precision") {
  current = GENERATE(from_range(machines()));
  CAPTURE(current->name());
  constexpr std::size_t rows = 13, n = 104;
  auto x = random_values(rows * n, 1, 6), b = random_values(n, 2), g = random_values(rows * n, 3);
  auto before = narrow(x), bias = narrow(b), gradient = narrow(g);
  values sum = x, after(x.size());
  exact.bias_gelu(sum.data(), b.data(), rows, n, after.data());

  // A product of a column of ones and a row of zeros, with what comes after it.
  halves ones(rows * 8, to_bf16(0.0f)), zeros(8 * n, to_bf16(0.0f)), made(rows * n), seen(rows * n);
  floats added(rows * n), bias_f(n), plus(rows * n);
  for (std::size_t i = 0; i < n; ++i) bias_f[i] = static_cast<float>(b[i]);
  for (std::size_t i = 0; i < plus.size(); ++i) plus[i] = static_cast<float>(x[i]);
  product p{.a = {ones.data(), rows, 8}, .b = {zeros.data(), 8, n}, .stride = n};
  p.wide = added.data();
  p.plus = plus.data();
  p.bias = bias_f.data();
  on()->multiply(p);
  CHECK(distance(added, sum) < 1e-6);

  // x as a product with the identity, so that gelu's input is x + bias.
  halves identity(n * n, to_bf16(0.0f));
  for (std::size_t i = 0; i < n; ++i) identity[i * n + i] = to_bf16(1.0f);
  product with_gelu{.a = {before.data(), rows, n},
                    .b = {identity.data(), n, n},
                    .narrow = made.data(),
                    .stride = n,
                    .narrow_bias = bias.data(),
                    .before = seen.data()};
  on()->multiply(with_gelu);
  CHECK(distance(seen, sum) < rounding);
  CHECK(distance(made, after) < rounding);
  with_gelu.before = nullptr;
  on()->multiply(with_gelu);
  CHECK(distance(made, sum) < rounding);

  values nothing(n);
  auto slope = g;
  exact.gelu_backward(slope.data(), x.data(), rows, n, nothing.data());
  product with_slope{.a = {gradient.data(), rows, n},
                     .b = {identity.data(), n, n},
                     .narrow = made.data(),
                     .stride = n,
                     .slope_at = before.data()};
  on()->multiply(with_slope);
  CHECK(distance(made, slope) < rounding);
}

TEST_CASE("the CUDA kernels for embeddings agree with double precision") {
  current = GENERATE(from_range(machines()));
  CAPTURE(current->name());
  constexpr std::size_t rows = 3, sequence = 7, n = 24, vocabulary = 5;
  auto w = random_values(vocabulary * n, 1), p = random_values(sequence * n, 2),
       g = random_values(rows * sequence * n, 3);
  auto wf = wide(w), pf = wide(p), gf = wide(g);
  const words tokens{4, 1, 1, 0, 4, 2, 1, 1, 0, 0, 2, 2, 2, 4, 4, 1, 0, 2, 1, 0, 4};
  values out(rows * sequence * n), gw(vocabulary * n, 1), gp(sequence * n, 1);
  exact.embed(tokens.host(), rows, sequence, n, w.data(), p.data(), out.data());
  exact.embed_backward(tokens.host(), rows, sequence, n, g.data(), gw.data(), gp.data());
  floats made(out.size()), gw_f(vocabulary * n, 1.0f), gp_f(sequence * n, 1.0f);
  on()->embed(tokens.data(), tokens.size(), sequence, n, wf.data(), pf.data(), made.data());
  CHECK(distance(made, out) < 1e-6);
  const words occur{0, 1, 2, 4};
  words begins(5), places(tokens.size());
  std::uint32_t place = 0;
  for (std::size_t i = 0; i < occur.size(); ++i) {
    begins[i] = place;
    for (std::uint32_t at = 0; at < tokens.size(); ++at)
      if (tokens[at] == occur[i]) places[place++] = at;
  }
  begins[occur.size()] = place;
  on()->embed_words_backward(occur.data(), begins.data(), places.data(), occur.size(), n, gf.data(),
                             gw_f.data());
  on()->embed_positions_backward(rows, sequence, n, gf.data(), gp_f.data());
  CHECK(distance(gw_f, gw) < 1e-6);
  CHECK(distance(gp_f, gp) < 1e-6);
}

TEST_CASE("the CUDA kernel for cross entropy agrees with double precision and fills its rows") {
  current = GENERATE(from_range(machines()));
  CAPTURE(current->name());
  const auto [n, width] =
      GENERATE(table<std::size_t, std::size_t>({{37, 64}, {64, 64}, {1023, 1024}, {3001, 3072}}));
  constexpr std::size_t rows = 5;
  CAPTURE(n);
  values logits(rows * n);
  halves made(rows * width, to_bf16(99.0f));
  random_source random{1};
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < n; ++c) {
      made[r * width + c] =
          to_bf16(static_cast<float>(r == 4 ? 900 * random.uniform() : 6 * random.uniform()));
      logits[r * n + c] = static_cast<double>(to_float(made[r * width + c]));
    }
  const words targets{0, static_cast<std::uint32_t>(n - 1), 5, 6, 7};
  const double loss =
      exact.cross_entropy(logits.data(), targets.host(), rows, n, 1.0 / rows) / rows;
  array<double> loss_made(1);
  floats losses(rows);
  auto back = in_any_order([&] {
    auto copy = made;
    on()->cross_entropy(copy.data(), targets.data(), rows, n, width, losses.data(),
                        loss_made.data());
    return copy;
  });
  CHECK(loss_made[0] == Approx(loss).epsilon(1e-6));
  halves dense(rows * n);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < n; ++c) dense[r * n + c] = back[r * width + c];
    for (std::size_t c = n; c < width; ++c) CHECK(to_float(back[r * width + c]) == 0);
  }
  CHECK(distance(dense, logits) < rounding);
}

TEST_CASE("the CUDA kernel for AdamW agrees with double precision, and has the CPU's bits") {
  current = GENERATE(from_range(machines()));
  CAPTURE(current->name());
  constexpr std::size_t n = 1000;
  auto w = random_values(n, 1), m1 = random_values(n, 2), v = random_values(n, 3),
       g = random_values(n, 4);
  for (auto& x : v) x = std::abs(x);
  auto wf = wide(w), mf = wide(m1), vf = wide(v), gf = wide(g);
  const gpu::cpu::adamw_step how{.scale = 0.25,
                                 .learning_rate = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .epsilon = 1e-8,
                                 .decay = 0.1,
                                 .correction1 = 0.19,
                                 .correction2 = 0.0975};
  const adamw_numbers numbers{.scale = 0.25f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .keep1 = 0.1f,
                              .keep2 = 0.05f,
                              .epsilon = 1e-8f,
                              .rate = static_cast<float>(0.01 / 0.19),
                              .correct = static_cast<float>(1 / 0.0975),
                              .shrink = 0.999f};
  const array<adamw_run> runs{{0, 8, 600, 1, 1, 0}, {600, 640, 400, 0, 0, 0}};
  double norm = exact.adamw(w.data(), m1.data(), v.data(), g.data(), 600, how);
  auto bare = how;
  bare.decay = 0;
  exact.adamw(w.data() + 600, m1.data() + 600, v.data() + 600, g.data() + 600, 400, bare);
  const auto copy = [](const auto& a) { return std::vector<float>(a.host(), a.host() + n); };
  struct {
    std::vector<float> w, m, v;
  } on_cpu{copy(wf), copy(mf), copy(vf)};
  const auto& cpu = gpu::cpu::float_kernels();
  cpu.adamw(on_cpu.w.data(), on_cpu.m.data(), on_cpu.v.data(), gf.host(), 600, how);
  cpu.adamw(on_cpu.w.data() + 600, on_cpu.m.data() + 600, on_cpu.v.data() + 600, gf.host() + 600,
            400, bare);
  halves copies(1100);
  array<double> norms(2), norm_made(1);
  on()->adamw(runs.data(), 2, wf.data(), mf.data(), vf.data(), gf.data(), copies.data(), numbers,
              norms.data(), norm_made.data());
  CHECK(norm_made[0] == Approx(norm).epsilon(1e-6));
  CHECK(distance(wf, w) < 1e-6);
  CHECK(distance(mf, m1) < 1e-6);
  CHECK(distance(vf, v) < 1e-6);
  CHECK(gf[0] == 0);
  CHECK(gf[999] == 0);
  CHECK(std::equal(on_cpu.w.begin(), on_cpu.w.end(), wf.host()));
  CHECK(std::equal(on_cpu.m.begin(), on_cpu.m.end(), mf.host()));
  CHECK(std::equal(on_cpu.v.begin(), on_cpu.v.end(), vf.host()));
  CHECK(copies[8].bits == to_bf16(wf[0]).bits);
  CHECK(copies[640].bits == to_bf16(wf[600]).bits);
  halves again(1100);
  on()->narrow_weights(runs.data(), 2, wf.data(), again.data());
  CHECK(again[607].bits == to_bf16(wf[599]).bits);
}

TEST_CASE("the CUDA kernels for attention agree with double precision, forward and backward") {
  current = GENERATE(from_range(machines()));
  CAPTURE(current->name());
  struct shape {
    std::size_t rows, sequence, heads, width;
  };
  // Tiles of 16, 64 and 128 values a head; sequences that tiles divide, and that they do not.
  const auto s = GENERATE(shape{2, 1, 2, 8}, shape{2, 20, 3, 8}, shape{1, 16, 1, 16},
                          shape{1, 33, 2, 16}, shape{1, 64, 1, 64}, shape{2, 130, 2, 64},
                          shape{1, 71, 2, 40}, shape{1, 33, 1, 128}, shape{1, 97, 1, 80});
  CAPTURE(s.rows, s.sequence, s.heads, s.width);
  const auto hidden = s.heads * s.width, tokens = s.rows * s.sequence;
  gpu::cpu::pool memory;
  gpu::cpu::attention<double> reference{s.rows, s.sequence, hidden, s.heads, memory};
  auto qkv = random_values(tokens * 3 * hidden, 1, 2), g = random_values(tokens * hidden, 2);
  auto qkv_h = narrow(qkv), g_h = narrow(g);
  values out(tokens * hidden), sums(reference.log_sums()), gx(qkv.size());
  reference.forward(qkv.data(), out.data(), sums.data());
  const attention_shape about{static_cast<std::uint32_t>(s.sequence),
                              static_cast<std::uint32_t>(s.heads),
                              static_cast<std::uint32_t>(s.width)};
  floats sums_f(sums.size()), dots(sums.size());
  auto made = in_any_order([&] {
    halves h(out.size(), to_bf16(NAN));
    on()->attention(about, s.rows, qkv_h.data(), h.data(), sums_f.data());
    return h;
  });
  CHECK(distance(made, out) < 2 * rounding);  // probabilities are rounded, too
  CHECK(distance(sums_f, sums) < 1e-5);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(to_float(made[i]));
  reference.backward(g.data(), qkv.data(), out.data(), sums.data(), gx.data());
  auto back = in_any_order([&] {
    halves h(gx.size(), to_bf16(NAN));
    on()->attention_backward(about, s.rows, qkv_h.data(), made.data(), g_h.data(), sums_f.data(),
                             dots.data(), h.data());
    return h;
  });
  CHECK(distance(back, gx) < 2 * rounding);
}

TEST_CASE("attention on the CUDA device is causal") {
  current = GENERATE(from_range(machines()));
  CAPTURE(current->name());
  constexpr std::size_t sequence = 150, hidden = 64, changed = 77;
  auto qkv = random_values(sequence * 3 * hidden, 1);
  auto before = narrow(qkv);
  const attention_shape about{sequence, 1, 64};
  halves first(sequence * hidden), second(sequence * hidden);
  floats sums(sequence);
  on()->attention(about, 1, before.data(), first.data(), sums.data());
  for (std::size_t i = changed * 3 * hidden; i < qkv.size(); ++i) before[i] = to_bf16(3.0f);
  on()->attention(about, 1, before.data(), second.data(), sums.data());
  const auto same = changed * hidden * sizeof(bf16);
  CHECK(std::memcmp(first.host(), second.host(), same) == 0);
  CHECK(std::memcmp(first.host(), second.host(), same + 2 * hidden) != 0);
}
