#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "messages/domain/plan.hpp"

// A row of the tables that give the time of a fine-tuning iteration (planners/cost/
// lookup_table.hpp): T(a, s, m, l, amp, ckpt) of TITAN (Gao et al., SoCC 2022, section 4.1).

namespace troupe {

/// How a job is fine-tuned on a number of GPUs.
struct tuning_shape {
  std::uint32_t gpus = 1;           // a
  std::uint32_t accumulate = 1;     // s: micro-batches of an iteration
  std::uint32_t batch = 1;          // m: samples of an iteration, over all GPUs
  std::uint32_t frozen_layers = 0;  // l: from the first; they have no backward
  bool amp = false;                 // mixed precision
  bool recompute = false;           // ckpt: activations are computed again in the backward

  auto operator<=>(const tuning_shape&) const = default;
};

/// Where a row of a lookup table is from.
enum class row_source : std::uint8_t { file, profile, cost_model };
inline constexpr std::array row_source_names{"lut", "profile", "cost model"};
constexpr const char* to_string(row_source s) {
  return row_source_names[static_cast<std::size_t>(s)];
}

/// One measured, or predicted, way to fine-tune.
struct lookup_row {
  std::string gpu, model;  // names
  tuning_shape shape;
  double iteration_s = 0;
  double bytes_per_gpu = 0;
  plan how;  // the parallel plan that was found for this model on this number of GPUs
  row_source from = row_source::file;
};

}  // namespace troupe
