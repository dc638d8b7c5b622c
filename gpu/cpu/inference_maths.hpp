#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gpu/cpu/adapter_products.hpp"
#include "gpu/cpu/kernels/kernels.hpp"
#include "gpu/cpu/paged_attention.hpp"
#include "gpu/cpu/pool.hpp"
#include "gpu/cpu/rotary.hpp"
#include "gpu/cpu/thread_team.hpp"
#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/weights.hpp"

namespace troupe::gpu::cpu {

/// A model part's weights, and what is done with them to a tile: of a prefill always tile_positions
/// rows, those beyond a chunk's end included, since the bits of a product's row depend on their
/// number; otherwise 1 to decode_rows, by a product for which they do not. The threads of the
/// spec's number share columns of products, heads of attentions and rows of the rest; the bits do
/// not depend on how many they are.
class inference_maths {
 public:
  using row_groups = std::span<const adapted_rows>;

  /// Reads the weights, or makes random ones. Fails for weights that are not this model's, and if
  /// this host does not have the memory.
  static expected<inference_maths> make(const inference_spec& s);

  /// Takes the scratch for the steps with an adapter of this model.
  void prepare(const adapter& a) { adapters_.prepare(a); }

  /// out: one hidden state.
  void embed(std::uint32_t token, std::uint32_t position, float* out) const;
  /// The first half of an attention: norm, queries, keys and values, rotated. Returns `rows` rows
  /// of attention().row_values(), valid until the next call. positions: of the rows that are real.
  /// groups, here and below: rows with adapters, which prepare() knows.
  float* queries_keys_values(std::uint32_t sublayer, const float* hidden, std::size_t rows,
                             std::span<const std::uint32_t> positions, row_groups groups);
  /// The second half: hidden += attended times the product back.
  void leave_attention(std::uint32_t sublayer, float* hidden, std::size_t rows, row_groups groups);
  /// Where the halves leave [rows, query width] for each other.
  float* attended() { return attended_.get(); }
  void mlp(std::uint32_t sublayer, float* hidden, std::size_t rows, row_groups groups);
  /// rows: at most decode_rows.
  void head(const float* hidden, std::size_t rows, float* logits);

  paged_attention& attention() { return attention_; }
  thread_team& team() { return *team_; }

 private:
  struct sublayer_values {
    buffer<float> norm, norm_bias, wide, wide_bias, back, back_bias, query_norm, key_norm;
  };
  explicit inference_maths(const inference_spec& s);
  template <class Source>
  expected<void> load(const Source& source);
  void norm(const float* in, const float* weight, const float* bias, std::size_t rows);
  /// Norms of the heads' queries and keys, if the model has them, and rotations of a row.
  void place_heads(const sublayer_values& w, float* row, std::uint32_t position,
                   std::size_t thread);
  /// f(first, count, thread) for ranges of rows of n values; their results must not depend on the
  /// ranges.
  template <class F>
  void for_rows(std::size_t rows, std::size_t n, F&& f) const;
  /// out [rows, columns] += in [rows, inner] * weight; begin(row, first, count) is called before it
  /// for each row of a range of columns.
  template <class F>
  void add(const float* in, std::size_t rows, std::size_t inner, const float* weight,
           std::size_t columns, float* out, F&& begin) const;
  /// out: [rows, columns] = bias (or 0) + in [rows, inner] * weight.
  void product(const float* in, std::size_t rows, std::size_t inner, const float* weight,
               const float* bias, std::size_t columns, float* out) const;
  /// hidden += bias + in [rows, inner] * weight.
  void add_product(const float* in, std::size_t rows, std::size_t inner, const float* weight,
                   const float* bias, float* hidden) const;

  inference_spec spec_;
  std::size_t hidden_, inner_;
  bool gpt2_;
  const kernels<float>& k_;
  rotary rotary_;
  std::unique_ptr<thread_team> team_;
  paged_attention attention_;
  adapter_products adapters_;
  pool memory_;
  std::vector<sublayer_values> sublayers_;
  buffer<float> embedding_, positions_, last_norm_, last_norm_bias_, head_;
  static_assert(decode_rows == few_rows);
  buffer<float> normed_, wide_, after_, attended_, statistics_;  // scratch of one tile
  buffer<float> heads_;  // scratch of each thread: normed queries and keys of a row
};

}  // namespace troupe::gpu::cpu
