#include "gpu/cpu/inference_maths.hpp"

#include <unistd.h>

#include <algorithm>

#include "gpu/cpu/kernels/matrix.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu::cpu {

namespace {

/// Refuses what would only be killed later.
/// The operating system overcommits, so an allocation succeeds and the out-of-memory killer ends
/// the process while the weights are read. Only weights are counted, four bytes a value as they are
/// held in memory, against all physical memory of the host.
expected<void> check_memory(const inference_spec& s) {
  std::uint64_t values = 0;
  const auto add = [&](const weight_matrix& w) { values += w.exists() ? w.values() : 0; };
  for (auto i = s.first_sublayer; i < s.first_sublayer + s.sublayers; ++i) {
    const auto w = weights_of(s.model, i);
    for (const auto* m : w.all()) add(*m);
  }
  const auto ends = end_weights_of(s.model);
  if (s.embeds) add(ends.embedding), add(ends.positions);
  if (s.predicts) add(ends.head);
  const double need = 4.0 * static_cast<double>(values),
               have = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (need <= have) return {};
  return refuse(reason::kind::insufficient,
                "the weights of {} need {:.1f} GB, this host has {:.1f} GB", s.model.name,
                need / 1e9, have / 1e9);
}

/// Values that a tile's widest intermediate result has in a row.
std::size_t widest(const inference_model& m) {
  const std::size_t inner = m.intermediate;
  return std::max<std::size_t>(m.query_width() + 2ull * m.kv_width(), 2 * inner);
}

constexpr std::size_t up_to_multiple(std::size_t n, std::size_t of) {
  return (n + of - 1) / of * of;
}

/// Columns of a range of a tile's product. The bits of the library's product may depend on their
/// number, so they do not depend on the number of threads. A multiple of the columns that the
/// library computes together.
std::size_t tile_range(std::size_t columns) {
  constexpr std::size_t together = 48, min_range = 96, max_ranges = 32;
  return std::max(min_range, up_to_multiple(columns / max_ranges, together));
}

/// Columns of a range of a product of few rows. Weights are read fastest in long runs; two ranges
/// for each thread, if they are not too short for that, as one may get less of its processor.
std::size_t few_range(std::size_t columns, std::size_t threads) {
  constexpr std::size_t vector = 16, long_run = 512;
  const auto one_each = (columns + threads - 1) / threads;
  return up_to_multiple(std::max((one_each + 1) / 2, std::min(one_each, long_run)), vector);
}

// Waking the other threads takes some microseconds: below these numbers of weights that are read,
// of terms of a tile's products and of values of a tile's rows the work is done before.
constexpr std::size_t shared_weights = 100'000, shared_terms = 1'000'000, shared_values = 16'384;

}  // namespace

// Scratch is sized for one tile and allocated once: a part works on one tile at a time, so no step
// allocates. The statistics hold a mean and an inverse deviation per row.
inference_maths::inference_maths(const inference_spec& s)
    : spec_{s},
      hidden_{s.model.hidden},
      inner_{s.model.intermediate},
      gpt2_{s.model.kind == inference_model::family::gpt2},
      k_{float_kernels()},
      rotary_{s.model},
      team_{std::make_unique<thread_team>(s.threads)},
      attention_{s.model, s.threads},
      adapters_{s.threads},
      normed_{memory_.take<float>(tile_positions * hidden_)},
      wide_{memory_.take<float>(tile_positions * widest(s.model))},
      after_{memory_.take<float>(tile_positions * inner_)},
      attended_{memory_.take<float>(1ull * tile_positions * s.model.query_width())},
      statistics_{memory_.take<float>(2 * tile_positions)} {
  if (s.model.head_norms)
    heads_ = memory_.take<float>(1ull * s.threads *
                                 up_to_multiple(s.model.query_width() + s.model.kv_width(), 16));
}

// Files are opened before scratch is allocated, so a missing file fails at once. Random weights are
// for tests and measurements that need a model's cost and not its text; they depend only on the
// seed and the matrix, so parts on different devices agree.
expected<inference_maths> inference_maths::make(const inference_spec& s) {
  if (auto ok = check_memory(s); !ok) return refuse(ok.error());
  if (s.seed) {
    inference_maths m{s};
    const auto random = [&](const weight_matrix& w, std::span<float> out) -> expected<void> {
      random_weights(w, *s.seed, out);
      return {};
    };
    if (auto ok = m.load(random); !ok) return refuse(ok.error());
    return m;
  }
  const auto files = model_weights::open(s.weights, s.model);
  if (!files) return refuse(files.error());
  inference_maths m{s};
  const auto stored = [&](const weight_matrix& w, std::span<float> out) {
    return files->read(w, out);
  };
  if (auto ok = m.load(stored); !ok) return refuse(ok.error());
  return m;
}

// Reads only the weights of this part's sublayers and ends. The first failure stops all later
// reads, since a part without all weights is never used.
template <class Source>
expected<void> inference_maths::load(const Source& source) {
  expected<void> all;  // or the first that cannot be read
  const auto read = [&](const weight_matrix& w) -> buffer<float> {
    if (!w.exists() || !all) return nullptr;
    auto b = memory_.take<float>(w.values());
    all = source(w, std::span{b.get(), w.values()});
    return b;
  };
  for (auto i = spec_.first_sublayer; i < spec_.first_sublayer + spec_.sublayers; ++i) {
    const auto w = weights_of(spec_.model, i);
    sublayers_.push_back({read(w.norm), read(w.norm_bias), read(w.wide), read(w.wide_bias),
                          read(w.back), read(w.back_bias), read(w.query_norm), read(w.key_norm)});
  }
  const auto ends = end_weights_of(spec_.model);
  if (spec_.embeds) {
    embedding_ = read(ends.embedding);
    positions_ = read(ends.positions);
  }
  if (spec_.predicts) {
    last_norm_ = read(ends.norm);
    last_norm_bias_ = read(ends.norm_bias);
    head_ = read(ends.head);
  }
  return all;
}

// GPT-2 adds a learned vector per position; models with rotary positions have none and rotate
// queries and keys instead.
void inference_maths::embed(std::uint32_t token, std::uint32_t position, float* out) const {
  std::copy_n(embedding_.get() + token * hidden_, hidden_, out);
  if (positions_) k_.add(out, positions_.get() + position * hidden_, hidden_);
}

// A few rows are cheaper than their sharing; of a tile each thread gets several ranges.
template <class F>
void inference_maths::for_rows(std::size_t rows, std::size_t n, F&& f) const {
  constexpr std::size_t range = 4;
  team_->run_if(rows > few_rows && rows * n >= shared_values, (rows + range - 1) / range,
                [&](std::size_t block, std::size_t thread) {
                  const auto first = block * range;
                  f(first, std::min(range, rows - first), thread);
                });
}

void inference_maths::norm(const float* in, const float* weight, const float* bias,
                           std::size_t rows) {
  for_rows(rows, hidden_, [&](std::size_t first, std::size_t count, std::size_t) {
    const auto* from = in + first * hidden_;
    auto *to = normed_.get() + first * hidden_, *means = statistics_.get() + first;
    if (gpt2_)
      k_.layer_norm(from, weight, bias, count, hidden_, to, means, means + rows);
    else
      k_.rms_norm(from, weight, count, hidden_, static_cast<float>(spec_.model.norm_epsilon), to);
  });
}

// A decode has few rows and is bound by reading the weights: its kernel sums each value in the
// order of `inner`, independent of the batch that a row happens to be in, so a request's tokens do
// not depend on the requests beside it. The library's product is faster for a prefill's tile, which
// always has the same number of rows.
template <class F>
void inference_maths::add(const float* in, std::size_t rows, std::size_t inner, const float* weight,
                          std::size_t columns, float* out, F&& begin) const {
  const bool few = rows <= few_rows;
  const bool shared = team_->size() > 1 && (few ? inner * columns >= shared_weights
                                                : rows * inner * columns >= shared_terms);
  const auto range = !few     ? tile_range(columns)
                     : shared ? few_range(columns, team_->size())
                              : columns;
  team_->run_if(shared, (columns + range - 1) / range, [&](std::size_t block, std::size_t) {
    const auto first = block * range, count = std::min(range, columns - first);
    for (std::size_t i = 0; i < rows; ++i) begin(i, first, count);
    if (few)
      k_.add_product(in, rows, weight + first, inner, columns, count, out + first);
    else
      multiply(matrix{in, rows, inner}, matrix{weight + first, inner, count, columns},
               matrix{out + first, rows, count, columns}, into::add);
  });
}

void inference_maths::product(const float* in, std::size_t rows, std::size_t inner,
                              const float* weight, const float* bias, std::size_t columns,
                              float* out) const {
  add(in, rows, inner, weight, columns, out,
      [&](std::size_t row, std::size_t first, std::size_t count) {
        auto* to = out + row * columns + first;
        if (bias)
          std::copy_n(bias + first, count, to);
        else
          std::fill_n(to, count, 0.0f);
      });
}

void inference_maths::add_product(const float* in, std::size_t rows, std::size_t inner,
                                  const float* weight, const float* bias, float* hidden) const {
  add(in, rows, inner, weight, hidden_, hidden,
      [&](std::size_t row, std::size_t first, std::size_t count) {
        if (bias) k_.add(hidden + row * hidden_ + first, bias + first, count);
      });
}

// Queries and keys lie together at the beginning of a row, head after head.
void inference_maths::place_heads(const sublayer_values& w, float* row, std::uint32_t position,
                                  std::size_t thread) {
  const auto& m = spec_.model;
  if (m.head_norms) {
    const std::size_t queries = m.query_width(), both = queries + m.kv_width();
    auto* normed = heads_.get() + thread * up_to_multiple(both, 16);
    const auto epsilon = static_cast<float>(m.norm_epsilon);
    k_.rms_norm(row, w.query_norm.get(), m.heads, m.head_width, epsilon, normed);
    k_.rms_norm(row + queries, w.key_norm.get(), m.kv_heads, m.head_width, epsilon,
                normed + queries);
    std::copy_n(normed, both, row);
  }
  k_.rotate(row, m.heads + m.kv_heads, m.head_width, rotary_.cosines(position),
            rotary_.sines(position));
}

// Queries, keys and values come from one product with the three matrices side by side, so the
// normed rows are read once. Only real rows have positions, so rows beyond a chunk's end stay
// unrotated.
float* inference_maths::queries_keys_values(std::uint32_t sublayer, const float* hidden,
                                            std::size_t rows,
                                            std::span<const std::uint32_t> positions,
                                            row_groups groups) {
  const auto& w = sublayers_[sublayer - spec_.first_sublayer];
  norm(hidden, w.norm.get(), w.norm_bias.get(), rows);
  const auto n = attention_.row_values();
  product(normed_.get(), rows, hidden_, w.wide.get(), w.wide_bias.get(), n, wide_.get());
  adapters_.add({sublayer, false, normed_.get(), wide_.get(), n}, groups, *team_);
  if (gpt2_) return wide_.get();
  rotary_.reach(*std::max_element(positions.begin(), positions.end()) + 1);
  for_rows(positions.size(), n, [&](std::size_t first, std::size_t count, std::size_t thread) {
    for (auto i = first; i < first + count; ++i)
      place_heads(w, wide_.get() + i * n, positions[i], thread);
  });
  return wide_.get();
}

void inference_maths::leave_attention(std::uint32_t sublayer, float* hidden, std::size_t rows,
                                      row_groups groups) {
  const auto& w = sublayers_[sublayer - spec_.first_sublayer];
  add_product(attended_.get(), rows, spec_.model.query_width(), w.back.get(), w.back_bias.get(),
              hidden);
  adapters_.add({sublayer, true, attended_.get(), hidden, hidden_}, groups, *team_);
}

// GPT-2: one wide product, then gelu, which adds the bias in the same pass. The other families:
// gate and up projection side by side in one product of twice the width, then silu(gate) * up.
void inference_maths::mlp(std::uint32_t sublayer, float* hidden, std::size_t rows,
                          row_groups groups) {
  const auto& w = sublayers_[sublayer - spec_.first_sublayer];
  norm(hidden, w.norm.get(), w.norm_bias.get(), rows);
  const auto wide = gpt2_ ? inner_ : 2 * inner_;
  product(normed_.get(), rows, hidden_, w.wide.get(), gpt2_ ? nullptr : w.wide_bias.get(), wide,
          wide_.get());
  adapters_.add({sublayer, false, normed_.get(), wide_.get(), wide}, groups, *team_);
  for_rows(rows, wide, [&](std::size_t first, std::size_t count, std::size_t) {
    auto *from = wide_.get() + first * wide, *to = after_.get() + first * inner_;
    if (gpt2_)
      k_.bias_gelu(from, w.wide_bias.get(), count, inner_, to);
    else
      k_.silu_gate(from, count, inner_, to);
  });
  add_product(after_.get(), rows, inner_, w.back.get(), w.back_bias.get(), hidden);
  adapters_.add({sublayer, true, after_.get(), hidden, hidden_}, groups, *team_);
}

void inference_maths::head(const float* hidden, std::size_t rows, float* logits) {
  norm(hidden, last_norm_.get(), last_norm_bias_.get(), rows);
  product(normed_.get(), rows, hidden_, head_.get(), nullptr, spec_.model.vocabulary, logits);
}

}  // namespace troupe::gpu::cpu
