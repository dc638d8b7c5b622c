#pragma once

#include <type_traits>

#include "gpu/cuda/kernels/elementwise.hpp"
#include "gpu/cuda/kernels/norm.hpp"
#include "gpu/cuda/runtime/machine.hpp"

namespace troupe::gpu::cuda {

/// The default and the maximum shared memory of a block (sm_90; the kernels here need far less than
/// sm_80's 163 KiB).
constexpr std::size_t plain_shared_bytes = 48 << 10, max_shared_bytes = 227 << 10;

/// Shared memory of a kernel's block.
template <class Kernel, class = void>
constexpr std::size_t shared_bytes_of = 0;
template <class Kernel>
constexpr std::size_t shared_bytes_of<Kernel, std::void_t<decltype(Kernel::shared_bytes)>> =
    Kernel::shared_bytes;

template <int Width, int Warps, int Inner, int BackwardInner>
struct attention_tiles {
  using forward = attention_kernel<Width, Warps, Inner>;
  using queries_backward = attention_queries_backward_kernel<Width, Warps, BackwardInner>;
  using keys_backward = attention_keys_backward_kernel<Width, Warps, BackwardInner>;
};

/// The tiles of attention on a GPU, for heads of up to `width` values.
template <class Use>
void with_gpu_tiles(std::uint32_t width, Use use) {
  if (width <= 64)
    use(attention_tiles<64, 4, 64, 32>{});
  else
    use(attention_tiles<128, 4, 32, 32>{});
}

template <class Launcher, class... Kernel>
void prepare_each(Launcher& with) {
  (with.template prepare<Kernel>(shared_bytes_of<Kernel>), ...);
}

/// Every kernel that `launches` launches.
template <class Launcher>
void prepare_all(Launcher& with) {
  prepare_each<Launcher, embed_kernel, embed_positions_backward_kernel, embed_words_backward_kernel,
               narrow_kernel, add_kernel, layer_norm_kernel, layer_norm_backward_kernel,
               norm_weights_kernel, sum_rows_kernel<float>, sum_rows_kernel<bf16>, add_parts_kernel,
               attention_dots_kernel, cross_entropy_kernel, total_kernel<float>,
               total_kernel<double>, adamw_kernel, narrow_weights_kernel, add_bias_kernel<float>,
               add_bias_kernel<bf16>, bias_gelu_kernel, gelu_backward_kernel>(with);
  for (const std::uint32_t width : {16u, 64u, widest_head})
    with.with_tiles(width, [&with](auto tiles) {
      using all = decltype(tiles);
      prepare_each<Launcher, typename all::forward, typename all::queries_backward,
                   typename all::keys_backward>(with);
    });
}

/// A machine's kernels for a launcher of one. Launcher has
///   template <class Kernel> void prepare(std::size_t shared_bytes)
/// which makes a kernel ready on this machine, with so much shared memory: drivers keep that by
/// device. Its constructor calls prepare_kernels(), since to load a kernel at its first launch may
/// wait for whatever the GPU is at, and that may be a sum that waits for this launch.
///   template <class Kernel> void launch(const Kernel&, std::size_t blocks, std::size_t blocks_y,
///                                       std::size_t shared_bytes)
/// which may have up to 2^31 - 1 blocks, but no more than 65,535 in the direction of y;
/// and the tiles of attention for a head's width:
///   template <class Use> void with_tiles(std::uint32_t width, Use use)
/// which calls use(attention_tiles<...>{}).
template <class Launcher>
class launches : public machine {
 public:
  void embed(const std::uint32_t* tokens, std::size_t count, std::size_t sequence, std::size_t n,
             const float* words, const float* positions, float* out) override {
    fours(embed_kernel{{count * n / 4}, tokens, sequence, n, words, positions, out});
  }
  void embed_positions_backward(std::size_t rows, std::size_t sequence, std::size_t n,
                                const float* gradient, float* positions) override {
    fours(embed_positions_backward_kernel{
        {sequence * n / 4}, rows, sequence, n, gradient, positions});
  }
  void embed_words_backward(const std::uint32_t* occur, const std::uint32_t* begins,
                            const std::uint32_t* places, std::size_t words_that_occur,
                            std::size_t n, const float* gradient, float* words) override {
    start(embed_words_backward_kernel{occur, begins, places, n, gradient, words}, words_that_occur);
  }
  void narrow(const float* in, std::size_t count, bf16* out) override {
    fours(narrow_kernel{{count / 4}, in, out});
  }
  void add(float* to, const float* what, std::size_t count) override {
    fours(add_kernel{{(count + 3) / 4}, to, what, count});
  }
  void layer_norm(const float* in, const float* weight, const float* bias, std::size_t rows,
                  std::size_t n, bf16* out, float* means, float* inverses) override {
    start(layer_norm_kernel{{rows, n}, in, weight, bias, out, means, inverses},
          blocks(rows, each_row::rows_a_block));
  }
  void layer_norm_backward(const bf16* gradient_out, const float* in, const float* weight,
                           const float* means, const float* inverses, std::size_t rows,
                           std::size_t n, bool adds, float* gradient, bf16* narrowed,
                           float* weight_sum, float* bias_sum, float* scratch) override {
    const auto parts = parts_of(rows);
    start(
        layer_norm_backward_kernel{
            {rows, n}, gradient_out, in, weight, means, inverses, gradient, narrowed, adds},
        blocks(rows, each_row::rows_a_block));
    start(norm_weights_kernel{{rows, n, blocks(rows, parts), scratch},
                              gradient_out,
                              in,
                              means,
                              inverses,
                              scratch + parts * n},
          blocks(n, each_part::columns), parts);
    add_parts(scratch, parts, n, weight_sum);
    add_parts(scratch + parts * n, parts, n, bias_sum);
  }
  void sum_rows(const float* in, std::size_t rows, std::size_t n, float* sums,
                float* scratch) override {
    sum(in, rows, n, sums, scratch);
  }
  void sum_rows(const bf16* in, std::size_t rows, std::size_t n, float* sums,
                float* scratch) override {
    sum(in, rows, n, sums, scratch);
  }
  void attention(attention_shape shape, std::size_t rows, const bf16* qkv, bf16* out,
                 float* log_sums) override {
    self().with_tiles(shape.width, [&](auto tiles) {
      using kernel = typename decltype(tiles)::forward;
      start(kernel{shape, scale_of(shape), qkv, out, log_sums},
            blocks(shape.sequence, kernel::queries) * rows * shape.heads);
    });
  }
  void attention_backward(attention_shape shape, std::size_t rows, const bf16* qkv, const bf16* out,
                          const bf16* gradient_out, const float* log_sums, float* dots,
                          bf16* gradient_qkv) override {
    const auto count = rows * shape.sequence * shape.heads;
    start(attention_dots_kernel{shape, count, out, gradient_out, dots},
          blocks(count, attention_dots_kernel::threads / lanes));
    const attention_backward_arguments a{shape, scale_of(shape), qkv, gradient_out, log_sums,
                                         dots,  gradient_qkv};
    self().with_tiles(shape.width, [&](auto tiles) {
      using by_keys = typename decltype(tiles)::keys_backward;
      using by_queries = typename decltype(tiles)::queries_backward;
      start(by_keys{a}, blocks(shape.sequence, by_keys::keys) * rows * shape.heads);
      start(by_queries{a}, blocks(shape.sequence, by_queries::queries) * rows * shape.heads);
    });
  }
  void cross_entropy(bf16* logits, const std::uint32_t* targets, std::size_t rows, std::size_t n,
                     std::size_t width, float* losses, double* loss) override {
    const auto mean = 1 / static_cast<double>(rows);
    start(cross_entropy_kernel{logits, targets, n, width, static_cast<float>(mean), losses}, rows);
    start(total_kernel<float>{losses, rows, mean, loss}, 1);
  }
  void adamw(const adamw_run* runs, std::size_t count, float* values, float* first_moments,
             float* second_moments, float* gradients, bf16* narrowed, adamw_numbers how,
             double* norms, double* norm) override {
    start(
        adamw_kernel{runs, values, first_moments, second_moments, gradients, narrowed, norms, how},
        count);
    start(total_kernel<double>{norms, count, 1, norm}, 1);
  }
  void narrow_weights(const adamw_run* runs, std::size_t count, const float* values,
                      bf16* narrowed) override {
    start(narrow_weights_kernel{runs, values, narrowed}, count);
  }

 protected:
  void prepare_kernels() { prepare_all(self()); }

  /// The epilogue of a plain product, for a machine whose products do not have one: the product is
  /// written to `before` if that is set, without bias and gelu.
  void finish(const product& p) {
    const auto rows = p.a.rows, n = p.b.columns;
    if (p.bias) fours(add_bias_kernel<float>{{rows * n / 4}, p.wide, p.bias, n});
    if (p.before)
      fours(bias_gelu_kernel{{rows * n / 4}, p.before, p.narrow_bias, n, p.narrow});
    else if (p.narrow_bias)
      fours(add_bias_kernel<bf16>{{rows * n / 4}, p.narrow, p.narrow_bias, n});
    if (p.slope_at) fours(gelu_backward_kernel{{rows * n / 4}, p.narrow, p.slope_at});
  }

 private:
  Launcher& self() { return static_cast<Launcher&>(*this); }
  static std::size_t blocks(std::size_t n, std::size_t each) { return (n + each - 1) / each; }
  static float scale_of(attention_shape s) {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(s.width)));
  }
  template <class Kernel>
  void start(const Kernel& k, std::size_t count, std::size_t count_y = 1) {
    if (count > 0 && count_y > 0) self().launch(k, count, count_y, shared_bytes_of<Kernel>);
  }
  template <class Kernel>
  void fours(const Kernel& k) {
    start(k, blocks(k.count, Kernel::threads));
  }
  template <class T>
  void sum(const T* in, std::size_t rows, std::size_t n, float* sums, float* scratch) {
    const auto parts = parts_of(rows);
    start(sum_rows_kernel<T>{{rows, n, blocks(rows, parts), scratch}, in},
          blocks(n, each_part::columns), parts);
    add_parts(scratch, parts, n, sums);
  }
  void add_parts(const float* parts, std::size_t count, std::size_t n, float* sums) {
    start(add_parts_kernel{parts, count, n, sums}, blocks(n, add_parts_kernel::threads));
  }
};

}  // namespace troupe::gpu::cuda
