#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/device/stage_device.hpp"

namespace troupe::gpu {

/// One tensor of a GPT-2 model by its Hugging Face name, as a stage keeps it: row by row in 32-bit
/// floats. Matrices of blocks are [in, out] (Conv1D), embeddings and head [vocabulary, hidden].
struct parameter {
  enum class start : std::uint8_t { zero, one, normal };
  std::string name;
  std::uint64_t rows = 1, columns = 0;  // rows 1: a vector
  start initial = start::normal;
  double deviation = 0.02;  // of a normal start
  bool vector = true;       // biases and layer norms: their weight does not decay
  bool tied = false;        // the embedding that is the head too
  // Several devices share it: the whole tensor is so many runs of equally many values, and each has
  // its part of every run, which is rows x columns in all. 0: every device has all of it.
  std::uint64_t runs = 0;
  std::uint32_t share = 0, shares = 1;
  std::uint64_t offset = 0;  // of its first value in the stage's own parameters; 0 if tied

  std::uint64_t values() const { return rows * columns; }
  std::uint64_t whole_values() const { return values() * (runs > 0 ? shares : 1); }
  std::vector<std::uint64_t> shape() const;
};

/// The stage's parameters in the order in which they lie one behind another in what a device gives
/// and takes: token embedding, position embedding, sublayers, final layer norm, head. A tied
/// embedding is last, and lies apart.
std::vector<parameter> parameters_of(const stage_spec& s);

/// The same of a whole model.
std::vector<parameter> parameters_of(const troupe::model& m);

/// A device's part of a whole tensor's values, and back to its places in them.
void take_share(const parameter& p, std::span<const float> whole, std::span<float> part);
void put_share(const parameter& p, std::span<const float> part, std::span<float> whole);

/// The first values: a function of seed, name and index in the whole tensor alone.
void initialise(const parameter& p, std::uint64_t seed, std::span<float> values);

/// Why no device could be this stage; a reason with empty text: it could.
reason check(const stage_spec& s);

enum class sublayer : std::uint8_t { attention, mlp };
inline sublayer sublayer_kind(std::uint32_t i) {
  return i % 2 == 0 ? sublayer::attention : sublayer::mlp;
}
/// What a sublayer's parameters are called, less ".weight" and ".bias": its norm, the product that
/// widens, the product that comes back to the hidden size.
struct sublayer_names {
  std::string norm, wide, back;
};
sublayer_names names_of(std::uint32_t i);

/// Width of the MLP.
inline std::uint64_t inner_width(const troupe::model& m) {
  return m.intermediate ? m.intermediate : 4ull * m.hidden;
}

/// What a device has of them: all, or its share.
inline std::uint64_t own_heads(const stage_spec& s) {
  return s.model.heads / s.shares;
}
inline std::uint64_t own_inner(const stage_spec& s) {
  return inner_width(s.model) / s.shares;
}
/// Its heads' width together.
inline std::uint64_t own_hidden(const stage_spec& s) {
  return s.model.hidden / s.shares;
}

/// Tokens a micro-batch.
inline std::uint64_t tokens_of(const stage_spec& s) {
  return 1ull * s.rows * s.model.sequence;
}

}  // namespace troupe::gpu
