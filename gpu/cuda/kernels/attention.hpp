#pragma once

#include "gpu/cuda/kernels/portable.hpp"

// Causal attention without storing the probabilities, on tensor cores (Dao et al., FlashAttention
// 2). Forward keeps the logarithm of each row's sum of exponentials; backward recomputes the
// probabilities from it, in two kernels, one by keys and one by queries, so that every sum is
// computed by one thread in a fixed order.

namespace troupe::gpu::cuda {

/// Common arguments. qkv: tokens x 3 hidden, queries, keys and values side by side.
struct attention_shape {
  std::uint32_t sequence, heads, width;  // width: of a head, a multiple of 8

  TROUPE_DEVICE std::size_t hidden() const { return static_cast<std::size_t>(heads) * width; }
};

/// The tile and head of a block. A head's tiles are adjacent, so that its keys and values stay in
/// the cache; all are in the grid's x direction, since y is limited to 65,535.
struct attention_place {
  std::size_t head, sequence, row;  // row: of log_sums and dots, one a sequence and head
  int tile;

  TROUPE_DEVICE attention_place(const attention_shape& shape, int tiles)
      : row{static_cast<std::size_t>(block_id() / tiles)}, tile{block_id() % tiles} {
    head = row % shape.heads;
    sequence = row / shape.heads;
  }
};

/// Tiles of `rows` x Width values in shared memory, and a warp's loads from them. Width: the
/// head's, rounded up and padded with 0. Rows are padded by 16 bytes, so that ldmatrix has no bank
/// conflicts.
template <int Width>
struct tile_of {
  static constexpr int stride = Width + 8;

  /// Loads rows [first, first + rows) of a matrix with row stride `step`; 0 beyond `end`. Available
  /// after await_copies() and a barrier.
  template <int threads, int rows>
  TROUPE_DEVICE static void load(bf16* to, const bf16* from, std::size_t step, int first, int end,
                                 int width) {
    constexpr int pieces = Width / 8, apart = threads / pieces;
    static_assert(threads % pieces == 0 && rows % apart == 0);
    const int own = thread_id() / pieces, column = thread_id() % pieces * 8;
    const bool inside = column < width;
    const bf16* source = from + static_cast<std::size_t>(first + own) * step + column;
    bf16* target = to + own * stride + column;
    const std::size_t jump = apart * step;
    TROUPE_UNROLL
    for (int r = 0; r < rows; r += apart) {
      const bool there = inside && first + own + r < end;
      copy_ahead(reinterpret_cast<eight*>(target + r * stride),
                 reinterpret_cast<const eight*>(there ? source : from), there);
      source += jump;
    }
  }
  /// A left factor: 16 rows from `row`, 16 columns from `column`.
  TROUPE_DEVICE static void left(std::uint32_t (&to)[4], const bf16* tile, int row, int column) {
    const int lane = thread_id() % lanes;
    load_matrices(to, tile + (row + lane % 16) * stride + column + lane / 16 * 8);
  }
  /// Two right factors from the transposed tile: its rows are columns of the product.
  TROUPE_DEVICE static void right_turned(std::uint32_t (&to)[4], const bf16* tile, int row,
                                         int column) {
    const int lane = thread_id() % lanes;
    load_matrices(to, tile + (row + lane / 16 * 8 + lane % 8) * stride + column + lane / 8 % 2 * 8);
  }
  /// Two right factors from the tile: its rows are summed over, its columns are columns of the
  /// product.
  TROUPE_DEVICE static void right(std::uint32_t (&to)[4], const bf16* tile, int row, int column) {
    const int lane = thread_id() % lanes;
    load_matrices_turned(
        to, tile + (row + lane / 8 % 2 * 8 + lane % 8) * stride + column + lane / 16 * 8);
  }
  /// to (16 x Columns) += left (16 x Width, rows of `a` from `row`) x the transpose of `b`.
  template <int Columns>
  TROUPE_DEVICE static void multiply_turned(float (&to)[Columns / 8][4], const bf16* a, int row,
                                            const bf16* b) {
    TROUPE_UNROLL
    for (int k = 0; k < Width; k += 16) {
      std::uint32_t l[4], r[4];
      left(l, a, row, k);
      TROUPE_UNROLL
      for (int n = 0; n < Columns / 8; n += 2) {
        right_turned(r, b, n * 8, k);
        multiply_add(to[n], l, r[0], r[1]);
        multiply_add(to[n + 1], l, r[2], r[3]);
      }
    }
  }
  /// to (16 x Width) += values (16 x Rows, as a product left them, rounded) x b.
  template <int Rows>
  TROUPE_DEVICE static void multiply_rounded(float (&to)[Width / 8][4],
                                             const float (&values)[Rows / 8][4], const bf16* b) {
    TROUPE_UNROLL
    for (int k = 0; k < Rows / 8; k += 2) {
      const std::uint32_t l[4] = {
          pack(values[k][0], values[k][1]), pack(values[k][2], values[k][3]),
          pack(values[k + 1][0], values[k + 1][1]), pack(values[k + 1][2], values[k + 1][3])};
      std::uint32_t r[4];
      TROUPE_UNROLL
      for (int n = 0; n < Width / 8; n += 2) {
        right(r, b, k * 8, n * 8);
        multiply_add(to[n], l, r[0], r[1]);
        multiply_add(to[n + 1], l, r[2], r[3]);
      }
    }
  }
  /// Stores a product's two rows of this lane, `row` and `row + 8`, each times its factor.
  TROUPE_DEVICE static void write(bf16* to, std::size_t step, const float (&values)[Width / 8][4],
                                  int row, int end, int width, float upper, float lower) {
    const int column = thread_id() % 4 * 2;
    TROUPE_UNROLL
    for (int n = 0; n < Width / 8; ++n) {
      if (n * 8 >= width) continue;
      auto* at = to + static_cast<std::size_t>(row) * step + n * 8 + column;
      if (row < end)
        *reinterpret_cast<std::uint32_t*>(at) = pack(values[n][0] * upper, values[n][1] * upper);
      if (row + 8 < end)
        *reinterpret_cast<std::uint32_t*>(at + 8 * step) =
            pack(values[n][2] * lower, values[n][3] * lower);
    }
  }
};

template <int n>
TROUPE_DEVICE void clear(float (&values)[n][4]) {
  TROUPE_UNROLL
  for (int i = 0; i < n; ++i) TROUPE_UNROLL
  for (int j = 0; j < 4; ++j) values[i][j] = 0;
}

/// A reduction over the four lanes that share a row of a product.
TROUPE_DEVICE float quad_largest(float v) {
  v = larger(v, shuffle_xor(v, 1));
  return larger(v, shuffle_xor(v, 2));
}
TROUPE_DEVICE float quad_sum(float v) {
  v += shuffle_xor(v, 1);
  return v + shuffle_xor(v, 2);
}

/// A block has 16 queries per warp, of one head of one sequence. Grid: tiles x rows x heads.
template <int Width, int Warps, int Keys>
struct attention_kernel {
  using tile = tile_of<Width>;
  static constexpr int threads = Warps * lanes, queries = Warps * 16;
  static constexpr int shared_bytes = (queries + 4 * Keys) * tile::stride * 2;
  static constexpr float nothing = -3e38f;
  attention_shape shape;
  float scale;
  const bf16* qkv;
  bf16* out;
  float* log_sums;

  TROUPE_DEVICE void operator()() const {
    const int end = static_cast<int>(shape.sequence), width = static_cast<int>(shape.width);
    const int tiles = (end + queries - 1) / queries;
    const attention_place place{shape, tiles};
    const auto head = place.head, sequence = place.sequence;
    const int first = (tiles - 1 - place.tile) * queries;  // the longest first
    const auto step = 3 * shape.hidden();
    const bf16* base = qkv + sequence * shape.sequence * step + head * shape.width;
    auto* q = reinterpret_cast<bf16*>(shared_memory());
    auto* kv = q + queries * tile::stride;  // double buffering of keys and values
    const auto load = [&](int key) {
      auto* k = kv + key / Keys % 2 * 2 * Keys * tile::stride;
      tile::template load<threads, Keys>(k, base + shape.hidden(), step, key, end, width);
      tile::template load<threads, Keys>(k + Keys * tile::stride, base + 2 * shape.hidden(), step,
                                         key, end, width);
    };
    tile::template load<threads, queries>(q, base, step, first, end, width);
    load(0);

    const int warp_row = thread_id() / lanes * 16;
    const int row = first + warp_row + thread_id() % lanes / 4;  // and row + 8
    float sums[Width / 8][4];
    clear(sums);
    float max[2] = {nothing, nothing}, total[2] = {0, 0};
    const int last = first + queries < end ? first + queries : end;
    for (int key = 0; key < last; key += Keys) {
      await_copies();
      sync_threads();  // this tile is loaded, and the previous one is no longer read
      if (key + Keys < last) load(key + Keys);
      const bf16 *k = kv + key / Keys % 2 * 2 * Keys * tile::stride, *v = k + Keys * tile::stride;
      float scores[Keys / 8][4];
      clear(scores);
      tile::template multiply_turned<Keys>(scores, q, warp_row, k);
      softmax(scores, sums, max, total, row, key, end);
      tile::template multiply_rounded<Keys>(sums, scores, v);
    }
    TROUPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int at = row + 8 * half;
      total[half] = quad_sum(total[half]);
      if (at < end && thread_id() % 4 == 0)
        log_sums[place.row * shape.sequence + static_cast<std::size_t>(at)] =
            (max[half] * scale * log2_e + logarithm2(total[half])) / log2_e;
    }
    tile::write(out + sequence * shape.sequence * shape.hidden() + head * shape.width,
                shape.hidden(), sums, row, end, width, 1.0f / total[0], 1.0f / total[1]);
  }

  /// Online softmax: rescales earlier sums to the new maximum.
  TROUPE_DEVICE void softmax(float (&scores)[Keys / 8][4], float (&sums)[Width / 8][4],
                             float (&max)[2], float (&total)[2], int row, int key, int end) const {
    const float factor = scale * log2_e;
    const int top = row - thread_id() % lanes / 4;  // the warp's first query
    if (key + Keys - 1 > top || key + Keys > end) {
      TROUPE_UNROLL
      for (int n = 0; n < Keys / 8; ++n) TROUPE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int column = key + n * 8 + thread_id() % 4 * 2 + j % 2;
        if (column > row + j / 2 * 8 || column >= end) scores[n][j] = nothing;
      }
    }
    TROUPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      float next = max[half];
      TROUPE_UNROLL
      for (int n = 0; n < Keys / 8; ++n) TROUPE_UNROLL
      for (int j = 0; j < 2; ++j) next = larger(next, scores[n][2 * half + j]);
      next = quad_largest(next);
      const float correct = exponential2((max[half] - next) * factor);
      max[half] = next;
      const float less = next * factor;
      total[half] *= correct;
      TROUPE_UNROLL
      for (int n = 0; n < Width / 8; ++n) {
        sums[n][2 * half] *= correct;
        sums[n][2 * half + 1] *= correct;
      }
      TROUPE_UNROLL
      for (int n = 0; n < Keys / 8; ++n) TROUPE_UNROLL
      for (int j = 0; j < 2; ++j) {
        float& s = scores[n][2 * half + j];
        s = exponential2(s * factor - less);
        total[half] += s;
      }
    }
  }
};

/// A warp per token and head: the dot product of output and its gradient.
struct attention_dots_kernel {
  static constexpr int threads = 256;
  attention_shape shape;
  std::size_t count;  // tokens x heads
  const bf16 *out, *gradient_out;
  float* dots;  // [sequence, head, token], like the logarithms

  TROUPE_DEVICE void operator()() const {
    const auto i = static_cast<std::size_t>(block_id()) * (threads / lanes) +
                   static_cast<std::size_t>(thread_id() / lanes);
    if (i >= count) return;
    const auto token = i / shape.heads, head = i % shape.heads;
    const auto at = token * shape.hidden() + head * shape.width;
    float sum = 0;
    for (auto c = static_cast<std::size_t>(thread_id() % lanes); c < shape.width; c += lanes)
      sum += to_float(out[at + c]) * to_float(gradient_out[at + c]);
    sum = warp_sum(sum);
    if (thread_id() % lanes == 0)
      dots[(token / shape.sequence * shape.heads + head) * shape.sequence +
           token % shape.sequence] = sum;
  }
};

/// Common arguments of the backward kernels.
struct attention_backward_arguments {
  attention_shape shape;
  float scale;
  const bf16 *qkv, *gradient_out;
  const float *log_sums, *dots;
  bf16* gradient_qkv;
};

/// Gradients of queries. A block has 16 queries per warp.
template <int Width, int Warps, int Keys>
struct attention_queries_backward_kernel : attention_backward_arguments {
  using tile = tile_of<Width>;
  static constexpr int threads = Warps * lanes, queries = Warps * 16;
  static constexpr int shared_bytes = 2 * (queries + 2 * Keys) * tile::stride * 2;

  TROUPE_DEVICE void operator()() const {
    const int end = static_cast<int>(shape.sequence), width = static_cast<int>(shape.width);
    const int tiles = (end + queries - 1) / queries;
    const attention_place place{shape, tiles};
    const auto head = place.head, sequence = place.sequence;
    const int first = (tiles - 1 - place.tile) * queries;
    const auto step = 3 * shape.hidden();
    const auto offset = sequence * shape.sequence * step + head * shape.width;
    const bf16* base = qkv + offset;
    auto* q = reinterpret_cast<bf16*>(shared_memory());
    auto *g = q + queries * tile::stride, *kv = g + queries * tile::stride;
    const auto load = [&](int key) {
      auto* k = kv + key / Keys % 2 * 2 * Keys * tile::stride;
      tile::template load<threads, Keys>(k, base + shape.hidden(), step, key, end, width);
      tile::template load<threads, Keys>(k + Keys * tile::stride, base + 2 * shape.hidden(), step,
                                         key, end, width);
    };
    tile::template load<threads, queries>(q, base, step, first, end, width);
    tile::template load<threads, queries>(
        g, gradient_out + sequence * shape.sequence * shape.hidden() + head * shape.width,
        shape.hidden(), first, end, width);
    load(0);

    const int warp_row = thread_id() / lanes * 16;
    const int row = first + warp_row + thread_id() % lanes / 4;
    float log_sum[2], dot[2];
    TROUPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto at = place.row * shape.sequence + static_cast<std::size_t>(row + 8 * half);
      log_sum[half] = row + 8 * half < end ? log_sums[at] * log2_e : 0.0f;
      dot[half] = row + 8 * half < end ? dots[at] : 0.0f;
    }
    float sums[Width / 8][4];
    clear(sums);
    const int last = first + queries < end ? first + queries : end;
    for (int key = 0; key < last; key += Keys) {
      await_copies();
      sync_threads();  // this tile is loaded, and the previous one is no longer read
      if (key + Keys < last) load(key + Keys);
      const bf16 *k = kv + key / Keys % 2 * 2 * Keys * tile::stride, *v = k + Keys * tile::stride;
      float p[Keys / 8][4], d[Keys / 8][4];
      clear(p);
      clear(d);
      tile::template multiply_turned<Keys>(p, q, warp_row, k);
      tile::template multiply_turned<Keys>(d, g, warp_row, v);
      TROUPE_UNROLL
      for (int n = 0; n < Keys / 8; ++n) TROUPE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int column = key + n * 8 + thread_id() % 4 * 2 + j % 2, query = row + j / 2 * 8;
        const bool seen = column <= query && query < end;
        const float probability =
            seen ? exponential2(p[n][j] * scale * log2_e - log_sum[j / 2]) : 0.0f;
        d[n][j] = probability * (d[n][j] - dot[j / 2]) * scale;
      }
      tile::template multiply_rounded<Keys>(sums, d, k);
    }
    tile::write(gradient_qkv + offset, step, sums, row, end, width, 1.0f, 1.0f);
  }
};

/// Gradients of keys and values. A block has 16 keys per warp and loops over the queries that see
/// them.
template <int Width, int Warps, int Queries>
struct attention_keys_backward_kernel : attention_backward_arguments {
  using tile = tile_of<Width>;
  static constexpr int threads = Warps * lanes, keys = Warps * 16;
  static constexpr int shared_bytes =
      2 * (keys + 2 * Queries) * tile::stride * 2 + 4 * Queries * static_cast<int>(sizeof(float));

  TROUPE_DEVICE void operator()() const {
    const int end = static_cast<int>(shape.sequence), width = static_cast<int>(shape.width);
    const attention_place place{shape, (end + keys - 1) / keys};
    const auto head = place.head, sequence = place.sequence;
    const int first = place.tile * keys;
    const auto step = 3 * shape.hidden();
    const auto offset = sequence * shape.sequence * step + head * shape.width;
    const bf16 *base = qkv + offset,
               *g_base =
                   gradient_out + sequence * shape.sequence * shape.hidden() + head * shape.width;
    auto* k = reinterpret_cast<bf16*>(shared_memory());
    auto *v = k + keys * tile::stride, *qg = v + keys * tile::stride;
    auto* numbers = reinterpret_cast<float*>(qg + 4 * Queries * tile::stride);
    const auto load = [&](int query) {
      const int buffer = query / Queries % 2;
      auto* q = qg + buffer * 2 * Queries * tile::stride;
      tile::template load<threads, Queries>(q, base, step, query, end, width);
      tile::template load<threads, Queries>(q + Queries * tile::stride, g_base, shape.hidden(),
                                            query, end, width);
      auto* log_sum = numbers + buffer * 2 * Queries;
      static_assert(Queries <= threads);
      if (const int i = thread_id(); i < Queries) {
        const auto at = place.row * shape.sequence + static_cast<std::size_t>(query + i);
        log_sum[i] = query + i < end ? log_sums[at] * log2_e : 0.0f;
        log_sum[Queries + i] = query + i < end ? dots[at] : 0.0f;
      }
    };
    tile::template load<threads, keys>(k, base + shape.hidden(), step, first, end, width);
    tile::template load<threads, keys>(v, base + 2 * shape.hidden(), step, first, end, width);

    const int warp_row = thread_id() / lanes * 16;
    const int row = first + warp_row + thread_id() % lanes / 4;  // a key, and row + 8
    float for_keys[Width / 8][4], for_values[Width / 8][4];
    clear(for_keys);
    clear(for_values);
    const int start = first / Queries * Queries;
    load(start);
    for (int query = start; query < end; query += Queries) {
      await_copies();
      sync_threads();  // this tile is loaded, and the previous one is no longer read
      if (query + Queries < end) load(query + Queries);
      const int buffer = query / Queries % 2;
      const bf16 *q = qg + buffer * 2 * Queries * tile::stride, *g = q + Queries * tile::stride;
      const float *log_sum = numbers + buffer * 2 * Queries, *dot = log_sum + Queries;
      float p[Queries / 8][4], d[Queries / 8][4];
      clear(p);
      clear(d);
      tile::template multiply_turned<Queries>(p, k, warp_row, q);
      tile::template multiply_turned<Queries>(d, v, warp_row, g);
      TROUPE_UNROLL
      for (int n = 0; n < Queries / 8; ++n) TROUPE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int column = n * 8 + thread_id() % 4 * 2 + j % 2, key = row + j / 2 * 8;
        const bool seen = key <= query + column && query + column < end;
        const float probability =
            seen ? exponential2(p[n][j] * scale * log2_e - log_sum[column]) : 0.0f;
        p[n][j] = probability;
        d[n][j] = probability * (d[n][j] - dot[column]) * scale;
      }
      tile::template multiply_rounded<Queries>(for_values, p, g);
      tile::template multiply_rounded<Queries>(for_keys, d, q);
    }
    tile::write(gradient_qkv + offset + shape.hidden(), step, for_keys, row, end, width, 1.0f,
                1.0f);
    tile::write(gradient_qkv + offset + 2 * shape.hidden(), step, for_values, row, end, width, 1.0f,
                1.0f);
  }
};

}  // namespace troupe::gpu::cuda
