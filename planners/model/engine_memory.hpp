#pragma once

#include "messages/domain/job.hpp"
#include "planners/model/stage_memory.hpp"

// The memory that a stage of the built-in trainer has on a GPU (device: cuda), to the byte: what
// gpu/cuda/host/stage.cpp and device.cpp ask for, in closed form. Tests compare it with the
// device's own count (docs/planners/memory.md). Where work_facts::on_engine is false, MARP's form
// plans the memory.

namespace troupe::planners {

/// Per parameter: a 16-bit copy; a gradient, the weight and Adam's moments in single precision.
inline constexpr state_bytes engine_states{2, 4, 12};

/// The words of the head, padded for fast products. As stage::head_width in
/// gpu/cuda/host/stage.cpp.
std::uint64_t head_width(const model& m);

/// Memory of one of the GPUs that share the stage. A stage that recomputes keeps the activations of
/// one micro-batch, others of all that are in flight.
memory_parts engine_memory(const model& m, const stage_part& p, const stage_load& load);

/// The same for a cut of the model into stages: what grows with a stage's pieces, of one or several
/// of them, and what every stage needs beside it.
double engine_bytes_of_pieces(const model& m, const stage_part& p, const stage_load& load);
double engine_bytes_of_any_stage(const model& m, const stage_part& p, const stage_load& load);

}  // namespace troupe::planners
