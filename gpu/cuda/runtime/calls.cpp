#include "gpu/cuda/runtime/calls.hpp"

#include <bit>
#include <type_traits>

namespace troupe::gpu::cuda {

namespace {

using words = std::vector<std::uint64_t>;

template <class T>
void put(words& to, T* v) {
  to.push_back(std::bit_cast<std::uint64_t>(v));
}
void put(words& to, float v) {
  to.push_back(std::bit_cast<std::uint32_t>(v));
}
template <class T>
std::enable_if_t<std::is_integral_v<T>> put(words& to, T v) {
  to.push_back(static_cast<std::uint64_t>(v));
}
void put(words& to, const operand& o) {
  put(to, o.at);
  for (const auto n : {o.rows, o.columns, o.stride, std::size_t{o.turned}}) put(to, n);
}
void put(words& to, const attention_shape& s) {
  for (const auto n : {s.sequence, s.heads, s.width}) put(to, n);
}
void put(words& to, const adamw_numbers& how) {
  for (const auto v : {how.scale, how.beta1, how.beta2, how.keep1, how.keep2, how.epsilon, how.rate,
                       how.correct, how.shrink})
    put(to, v);
}

// All arguments as words: two calls of a name are the same launch exactly if their words are equal.
template <class... T>
words all(const T&... arguments) {
  words w;
  w.reserve(24);
  (put(w, arguments), ...);
  return w;
}

double times(std::size_t a, std::size_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

/// Pairs of a query and a key that it sees, of all heads.
double pairs(const attention_shape& s, std::size_t rows) {
  return times(rows * s.heads, std::size_t{s.sequence} * (s.sequence + 1) / 2);
}

}  // namespace

template <class... P, class... A>
void kernel_interceptor::pass_on(void (machine::*kernel)(P...), call what, A... arguments) {
  what.arguments = all(arguments...);
  perform(std::move(what), [=](machine& m) { (m.*kernel)(arguments...); });
}

void kernel_interceptor::copy(void* to, const void* from, std::size_t bytes) {
  pass_on(&machine::copy, {.name = "copy", .rows = 1, .columns = bytes, .bytes = times(2, bytes)},
          to, from, bytes);
}

void kernel_interceptor::zero(void* to, std::size_t bytes) {
  pass_on(&machine::zero, {.name = "zero", .rows = 1, .columns = bytes, .bytes = times(1, bytes)},
          to, bytes);
}

// Bytes are the compulsory traffic, each matrix once: the floor to which a measured time is
// compared.
void kernel_interceptor::multiply(const product& p) {
  const auto m = p.a.rows, n = p.b.columns, k = p.a.columns;
  const std::size_t a_value =
      (p.wide ? 4 : 2) + (p.plus ? 4 : 0) + (p.before ? 2 : 0) + (p.slope_at ? 2 : 0);
  const std::size_t bias = p.bias ? 4 : p.narrow_bias ? 2 : 0;
  perform({.name = p.before                     ? "product, bias, gelu"
                   : p.slope_at                 ? "product, gelu'"
                   : p.plus && p.plus == p.wide ? "product, added"
                   : p.plus                     ? "product, bias, residual"
                   : bias != 0                  ? "product, bias"
                                                : "product",
           .rows = m,
           .columns = n,
           .inner = k,
           .bytes = times(2, m * k + k * n) + times(a_value, m * n) + times(bias, n),
           .flops = 2 * times(m, n) * static_cast<double>(k),
           .arguments = all(p.a, p.b, p.wide, p.narrow, p.stride, p.plus, p.bias, p.narrow_bias,
                            p.before, p.slope_at)},
          [=](machine& to) { to.multiply(p); });
}

void kernel_interceptor::embed(const std::uint32_t* tokens, std::size_t count, std::size_t sequence,
                               std::size_t n, const float* words_at, const float* positions,
                               float* out) {
  pass_on(&machine::embed,
          {.name = "embedding",
           .rows = count,
           .columns = n,
           .bytes = times(4, count + 2 * count * n + sequence * n)},
          tokens, count, sequence, n, words_at, positions, out);
}

void kernel_interceptor::embed_positions_backward(std::size_t rows, std::size_t sequence,
                                                  std::size_t n, const float* gradient,
                                                  float* positions) {
  pass_on(&machine::embed_positions_backward,
          {.name = "positions' gradient",
           .rows = rows * sequence,
           .columns = n,
           .bytes = times(4, rows * sequence * n + 2 * sequence * n)},
          rows, sequence, n, gradient, positions);
}

void kernel_interceptor::embed_words_backward(const std::uint32_t* occur,
                                              const std::uint32_t* begins,
                                              const std::uint32_t* places,
                                              std::size_t words_that_occur, std::size_t n,
                                              const float* gradient, float* words_at) {
  // The number of occurring words is known only on the GPU: one row of the gradient per word is
  // counted.
  pass_on(&machine::embed_words_backward,
          {.name = "words' gradient",
           .rows = words_that_occur,
           .columns = n,
           .bytes = times(12, words_that_occur * n),
           .changes = true},
          occur, begins, places, words_that_occur, n, gradient, words_at);
}

void kernel_interceptor::narrow(const float* in, std::size_t count, bf16* out) {
  pass_on(&machine::narrow,
          {.name = "rounding", .rows = 1, .columns = count, .bytes = times(6, count)}, in, count,
          out);
}

void kernel_interceptor::add(float* to, const float* what, std::size_t count) {
  pass_on(&machine::add,
          {.name = "addition", .rows = 1, .columns = count, .bytes = times(12, count)}, to, what,
          count);
}

void kernel_interceptor::layer_norm(const float* in, const float* weight, const float* bias,
                                    std::size_t rows, std::size_t n, bf16* out, float* means,
                                    float* inverses) {
  pass_on(&machine::layer_norm,
          {.name = "layer norm",
           .rows = rows,
           .columns = n,
           .bytes = times(6, rows * n) + times(8, rows + n)},
          in, weight, bias, rows, n, out, means, inverses);
}

void kernel_interceptor::layer_norm_backward(const bf16* gradient_out, const float* in,
                                             const float* weight, const float* means,
                                             const float* inverses, std::size_t rows, std::size_t n,
                                             bool adds, float* gradient, bf16* narrowed,
                                             float* weight_sum, float* bias_sum, float* scratch) {
  pass_on(&machine::layer_norm_backward,
          {.name = "layer norm's gradient",
           .rows = rows,
           .columns = n,
           .bytes = times(adds ? 16 : 12, rows * n) + times(8, rows) + times(20, n)},
          gradient_out, in, weight, means, inverses, rows, n, adds, gradient, narrowed, weight_sum,
          bias_sum, scratch);
}

void kernel_interceptor::sum_rows(const float* in, std::size_t rows, std::size_t n, float* sums,
                                  float* scratch) {
  perform({.name = "bias' gradient, 32 bits",
           .rows = rows,
           .columns = n,
           .bytes = times(4, rows * n) + times(8, n),
           .arguments = all(in, rows, n, sums, scratch)},
          [=](machine& m) { m.sum_rows(in, rows, n, sums, scratch); });
}

void kernel_interceptor::sum_rows(const bf16* in, std::size_t rows, std::size_t n, float* sums,
                                  float* scratch) {
  perform({.name = "bias' gradient, 16 bits",
           .rows = rows,
           .columns = n,
           .bytes = times(2, rows * n) + times(8, n),
           .arguments = all(in, rows, n, sums, scratch)},
          [=](machine& m) { m.sum_rows(in, rows, n, sums, scratch); });
}

void kernel_interceptor::attention(attention_shape shape, std::size_t rows, const bf16* qkv,
                                   bf16* out, float* log_sums) {
  const auto tokens = rows * shape.sequence;
  pass_on(&machine::attention,
          {.name = "attention",
           .rows = tokens,
           .columns = shape.hidden(),
           .bytes = times(8, tokens * shape.hidden()) + times(4, tokens * shape.heads),
           .flops = 4 * pairs(shape, rows) * shape.width},
          shape, rows, qkv, out, log_sums);
}

void kernel_interceptor::attention_backward(attention_shape shape, std::size_t rows,
                                            const bf16* qkv, const bf16* out,
                                            const bf16* gradient_out, const float* log_sums,
                                            float* dots, bf16* gradient_qkv) {
  const auto tokens = rows * shape.sequence;
  pass_on(&machine::attention_backward,
          {.name = "attention's gradient",
           .rows = tokens,
           .columns = shape.hidden(),
           .bytes = times(16, tokens * shape.hidden()) + times(8, tokens * shape.heads),
           .flops = 10 * pairs(shape, rows) *
                    shape.width},  // five products; two recomputed ones do not count
          shape, rows, qkv, out, gradient_out, log_sums, dots, gradient_qkv);
}

void kernel_interceptor::cross_entropy(bf16* logits, const std::uint32_t* targets, std::size_t rows,
                                       std::size_t n, std::size_t width, float* losses,
                                       double* loss) {
  pass_on(&machine::cross_entropy,
          {.name = "cross entropy and its gradient",
           .rows = rows,
           .columns = width,
           .bytes = times(2, rows * n) + times(2, rows * width) + times(12, rows) + 8},
          logits, targets, rows, n, width, losses, loss);
}

void kernel_interceptor::adamw(const adamw_run* runs, std::size_t count, float* values,
                               float* first_moments, float* second_moments, float* gradients,
                               bf16* narrowed, adamw_numbers how, double* norms, double* norm) {
  // Counted as full runs; a parameter's last one may be shorter.
  pass_on(&machine::adamw,
          {.name = "AdamW",
           .rows = count,
           .columns = values_a_run,
           .bytes = times(34, count * values_a_run),
           .changes = true},
          runs, count, values, first_moments, second_moments, gradients, narrowed, how, norms,
          norm);
}

void kernel_interceptor::narrow_weights(const adamw_run* runs, std::size_t count,
                                        const float* values, bf16* narrowed) {
  pass_on(&machine::narrow_weights,
          {.name = "weights' rounding",
           .rows = count,
           .columns = values_a_run,
           .bytes = times(6, count * values_a_run)},
          runs, count, values, narrowed);
}

}  // namespace troupe::gpu::cuda
