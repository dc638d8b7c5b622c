#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/device/stage_device.hpp"

namespace troupe::gpu {

/// A tensor of a GPT-2 model by its Hugging Face name, row by row in 32-bit floats. Matrices of
/// blocks are [in, out] (Conv1D), embeddings and head [vocabulary, hidden].
struct parameter {
  enum class start : std::uint8_t { zero, one, normal };
  std::string name;
  std::uint64_t rows = 1, columns = 0;  // rows 1: a vector
  start initial = start::normal;
  double deviation = 0.02;  // of the normal distribution of its initial values
  bool vector = true;       // biases and layer norms: no weight decay
  bool tied = false;        // the embedding that is also the head
  // If several devices share it: the whole tensor consists of `runs` of equal length, and each
  // device has its slice of every run, rows x columns in all. 0: replicated.
  std::uint64_t runs = 0;
  std::uint32_t shard = 0, shards = 1;
  std::uint64_t offset = 0;  // of its first value in the stage's own parameters; 0 if tied

  std::uint64_t values() const { return rows * columns; }
  std::uint64_t whole_values() const { return values() * (runs > 0 ? shards : 1); }
  std::vector<std::uint64_t> shape() const;
};

/// The stage's parameters in the order of a device's payloads: token embedding, position embedding,
/// sublayers, final layer norm, head. A tied embedding is last, in a payload of its own.
std::vector<parameter> parameters_of(const stage_spec& s);

/// The same of a whole model.
std::vector<parameter> parameters_of(const troupe::model& m);

/// Extracts a device's slice from a whole tensor's values, and the inverse.
void take_share(const parameter& p, std::span<const float> whole, std::span<float> part);
void put_share(const parameter& p, std::span<const float> part, std::span<float> whole);

/// Initial values: a function of the seed, the name and the index in the whole tensor.
void initialise(const parameter& p, std::uint64_t seed, std::span<float> values);

/// Refuses what no device could be.
expected<void> check(const stage_spec& s);

enum class sublayer : std::uint8_t { attention, mlp };
inline sublayer sublayer_kind(std::uint32_t i) {
  return i % 2 == 0 ? sublayer::attention : sublayer::mlp;
}
/// The names of a sublayer's parameters without ".weight" and ".bias": its norm, the widening
/// product, and the product back to the hidden size.
struct sublayer_names {
  std::string norm, wide, back;
};
sublayer_names names_of(std::uint32_t i);

/// Width of the MLP.
inline std::uint64_t inner_width(const troupe::model& m) {
  return m.intermediate ? m.intermediate : 4ull * m.hidden;
}

/// A device's part of them: all, or its slice.
inline std::uint64_t own_heads(const stage_spec& s) {
  return s.model.heads / s.shards;
}
inline std::uint64_t own_inner(const stage_spec& s) {
  return inner_width(s.model) / s.shards;
}
/// Total width of its heads.
inline std::uint64_t own_hidden(const stage_spec& s) {
  return s.model.hidden / s.shards;
}

/// Tokens per micro-batch.
inline std::uint64_t tokens_of(const stage_spec& s) {
  return 1ull * s.rows * s.model.sequence;
}

}  // namespace troupe::gpu
