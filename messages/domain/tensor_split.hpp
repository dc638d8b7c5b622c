#pragma once

#include <cstdint>

#include "messages/domain/model.hpp"

namespace troupe {

/// Width of a transformer's MLP.
inline std::uint64_t mlp_width(const model& m) {
  return m.intermediate > 0 ? m.intermediate : 4 * std::uint64_t{m.hidden};
}

/// May a transformer's layers be divided among that many GPUs (tensor parallelism)? Each gets the
/// same number of heads, of key and value heads, and of the MLP's columns. A family that is given
/// as operators may be divided in any way, and a program's layers not at all.
inline bool splits_into(const model& m, std::uint32_t gpus) {
  if (has_program_layers(m)) return gpus == 1;
  if (!m.operators.empty()) return true;
  return m.heads % gpus == 0 && m.kv_heads % gpus == 0 && mlp_width(m) % gpus == 0;
}

}  // namespace troupe
