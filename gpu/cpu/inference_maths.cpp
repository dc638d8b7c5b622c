#include "gpu/cpu/inference_maths.hpp"

#include <unistd.h>

#include <algorithm>

#include "gpu/cpu/matrix.hpp"
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
    for (const auto* m : {&w.norm, &w.norm_bias, &w.wide, &w.wide_bias, &w.back, &w.back_bias})
      add(*m);
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
      attention_{s.model},
      normed_{memory_.take<float>(tile_positions * hidden_)},
      wide_{memory_.take<float>(tile_positions * widest(s.model))},
      after_{memory_.take<float>(tile_positions * inner_)},
      attended_{memory_.take<float>(1ull * tile_positions * s.model.query_width())},
      statistics_{memory_.take<float>(2 * tile_positions)} {}

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
                          read(w.back), read(w.back_bias)});
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

void inference_maths::norm(const float* in, const float* weight, const float* bias,
                           std::size_t rows) {
  if (gpt2_)
    k_.layer_norm(in, weight, bias, rows, hidden_, normed_.get(), statistics_.get(),
                  statistics_.get() + rows);
  else
    k_.rms_norm(in, weight, rows, hidden_, static_cast<float>(spec_.model.norm_epsilon),
                normed_.get());
}

// A decode has few rows and is bound by reading the weights: its kernel sums each value in the
// order of `inner`, independent of the batch that a row happens to be in, so a request's tokens do
// not depend on the requests beside it. The library's product is faster for a prefill's tile, which
// always has the same number of rows.
void inference_maths::add(const float* in, std::size_t rows, std::size_t inner, const float* weight,
                          std::size_t columns, float* out) const {
  if (rows <= few_rows)
    k_.add_product(in, rows, weight, inner, columns, out);
  else
    multiply(matrix{in, rows, inner}, matrix{weight, inner, columns}, matrix{out, rows, columns},
             into::add);
}

void inference_maths::product(const float* in, std::size_t rows, std::size_t inner,
                              const float* weight, const float* bias, std::size_t columns,
                              float* out) const {
  if (bias)
    k_.add_bias(nullptr, bias, rows, columns, out);
  else
    std::fill_n(out, rows * columns, 0.0f);
  add(in, rows, inner, weight, columns, out);
}

void inference_maths::add_product(const float* in, std::size_t rows, std::size_t inner,
                                  const float* weight, const float* bias, float* hidden) const {
  for (std::size_t i = 0; bias && i < rows; ++i) k_.add(hidden + i * hidden_, bias, hidden_);
  add(in, rows, inner, weight, hidden_, hidden);
}

// Queries, keys and values come from one product with the three matrices side by side, so the
// normed rows are read once. Rotation covers queries and keys, which lie together at the beginning
// of a row; only real rows have positions, so rows beyond a chunk's end stay unrotated.
float* inference_maths::queries_keys_values(std::uint32_t sublayer, const float* hidden,
                                            std::size_t rows,
                                            std::span<const std::uint32_t> positions) {
  const auto& w = sublayers_[sublayer - spec_.first_sublayer];
  const auto& m = spec_.model;
  norm(hidden, w.norm.get(), w.norm_bias.get(), rows);
  product(normed_.get(), rows, hidden_, w.wide.get(), w.wide_bias.get(), attention_.row_values(),
          wide_.get());
  if (gpt2_) return wide_.get();
  rotary_.reach(*std::max_element(positions.begin(), positions.end()) + 1);
  for (std::size_t i = 0; i < positions.size(); ++i)
    k_.rotate(wide_.get() + i * attention_.row_values(), m.heads + m.kv_heads, m.head_width,
              rotary_.cosines(positions[i]), rotary_.sines(positions[i]));
  return wide_.get();
}

void inference_maths::leave_attention(std::uint32_t sublayer, float* hidden, std::size_t rows) {
  const auto& w = sublayers_[sublayer - spec_.first_sublayer];
  add_product(attended_.get(), rows, spec_.model.query_width(), w.back.get(), w.back_bias.get(),
              hidden);
}

// GPT-2: one wide product, then gelu, which adds the bias in the same pass. The other families:
// gate and up projection side by side in one product of twice the width, then silu(gate) * up.
void inference_maths::mlp(std::uint32_t sublayer, float* hidden, std::size_t rows) {
  const auto& w = sublayers_[sublayer - spec_.first_sublayer];
  norm(hidden, w.norm.get(), w.norm_bias.get(), rows);
  if (gpt2_) {
    product(normed_.get(), rows, hidden_, w.wide.get(), nullptr, inner_, wide_.get());
    k_.bias_gelu(wide_.get(), w.wide_bias.get(), rows, inner_, after_.get());
  } else {
    product(normed_.get(), rows, hidden_, w.wide.get(), w.wide_bias.get(), 2 * inner_, wide_.get());
    k_.silu_gate(wide_.get(), rows, inner_, after_.get());
  }
  add_product(after_.get(), rows, inner_, w.back.get(), w.back_bias.get(), hidden);
}

void inference_maths::head(const float* hidden, std::size_t rows, float* logits) {
  norm(hidden, last_norm_.get(), last_norm_bias_.get(), rows);
  product(normed_.get(), rows, hidden_, head_.get(), nullptr, spec_.model.vocabulary, logits);
}

}  // namespace troupe::gpu::cpu
