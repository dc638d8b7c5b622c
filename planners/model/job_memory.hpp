#pragma once

#include <cstdint>

#include "messages/domain/job.hpp"
#include "planners/model/stage_memory.hpp"

// The memory of a job's stage on a GPU, by the form that counts for the job: of the built-in
// trainer's device (engine_memory.hpp), of a program as its file declares it (declared_memory.hpp),
// or MARP's; with every way of keeping activations or computing them again
// (docs/planners/memory.md).

namespace troupe::planners {

/// How stages come by the activations that their backwards need.
enum class recomputation : std::uint8_t {
  none,    // all are kept
  stages,  // from the stage's input, before a backward; the last stage keeps them
  layers   // from each layer's input, layer by layer during a backward, in all stages
};
recomputation recomputation_of(const job_spec& job);

/// Do GPUs that share a stage divide the embedding and the head, too? Those of programs do, as in
/// Megatron-LM; each of the built-in trainer's has them whole.
bool divides_words(const job_spec& job);

/// Memory of one of the GPUs that share the stage, in bytes.
memory_parts memory_of(const job_spec& job, const stage_part& p, const stage_load& load);

/// The sum with a cluster's headroom (cluster_settings::memory_headroom), or memory_gb unchanged.
double stage_bytes(const job_spec& job, const stage_part& p, const stage_load& load,
                   double headroom);

/// For a cut of the model into stages: what grows with a stage's pieces, of one or several of them,
/// and what every stage needs beside it.
double bytes_of_pieces(const job_spec& job, const stage_part& p, const stage_load& load);
double bytes_of_any_stage(const job_spec& job, const stage_part& p, const stage_load& load);

/// Bytes that every GPU of a stage has at least for each of its parameters.
double min_bytes_per_parameter(const job_spec& job);

}  // namespace troupe::planners
