#pragma once

#include <cstdint>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/model.hpp"

// How long a served model's prefill and decode take on a GPU, by the cost model's rates
// (docs/planners/bubbletea.md).

namespace troupe::planners {

/// A layer of a served model, in half precision. All layers of a model are equal; the embedding,
/// the last norm and the head are not on the GPUs that prefill.
struct served_layer {
  std::uint32_t layers = 0;  // in the whole model
  double hidden = 0;
  double parameters = 0;  // per layer
  double kv_bytes = 0;    // per token and layer: keys and values
  double queries = 0;     // width of all heads together: hidden, unless heads have another

  double weight_bytes() const { return 2 * parameters; }
  /// Bytes that one guest hands to the next.
  double hidden_bytes(double tokens) const { return 2 * hidden * tokens; }
  bool operator==(const served_layer&) const = default;
};

/// Fails for families without a decoder's cache (bert, vit) and models given as operators.
expected<served_layer> served_layer_of(const model& m);

/// Seconds that one layer takes. `token_s`: for each token, at the full rate; `pair_s`: for each
/// token and each earlier one that it attends to. An operation on few rows is slower: one on
/// `half_tokens` rows runs at half of the full rate.
struct prefill_rate {
  double token_s = 0, pair_s = 0, half_tokens = 0;

  /// One layer on `rows` tokens that follow `cached` ones, as one operation.
  double layer_s(double rows, double cached) const {
    return (token_s + pair_s * (cached + rows / 2)) * (rows + half_tokens);
  }
  bool operator==(const prefill_rate&) const = default;
};

/// 2 x parameters FLOPs for a token, 4 x hidden for a pair, over what large matrix products reach
/// on the GPU. The half-efficiency size is an assumption.
inline constexpr double assumed_half_tokens = 128;
prefill_rate prefill_rate_of(const served_layer& layer, const gpu_type& gpu,
                             double half_tokens = assumed_half_tokens);

/// Seconds of `tokens` that follow `cached` ones through `layers` layers, as one operation each.
inline double prefill_s(const prefill_rate& rate, std::uint32_t layers, double tokens,
                        double cached) {
  return layers * rate.layer_s(tokens, cached);
}

/// Seconds of one token of each of `sequences`, which have `cached` tokens in all, through `layers`
/// layers: what their products take, and at least the reading of weights and caches.
double decode_s(const served_layer& layer, const gpu_type& gpu, std::uint32_t layers,
                double sequences, double cached);

/// Seconds that `tokens`' hidden vectors take to the next guest.
double hop_s(const served_layer& layer, const link& to, double tokens);

}  // namespace troupe::planners
