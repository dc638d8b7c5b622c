#pragma once

#include <cstddef>
#include <cstdint>

// Limits of job specifications: all that determines the controller's work or memory is limited.
// job_keys.hpp has the limits of each key.

namespace troupe::admission {

inline constexpr std::uint32_t max_layers = 2000;
inline constexpr std::uint32_t max_threads = 1024;  // of a worker
inline constexpr std::uint32_t max_slot_mb = 1 << 20;
inline constexpr std::size_t max_arguments_bytes = 64 << 10;
inline constexpr std::size_t max_operators = 4000;  // as many as the sublayers of max_layers
inline constexpr std::uint32_t max_hidden = 1'000'000;
inline constexpr std::uint32_t max_heads = 100'000;
inline constexpr std::uint32_t max_intermediate = 10'000'000;
inline constexpr std::uint32_t max_sequence = 100'000'000;
inline constexpr std::uint32_t max_vocabulary = 100'000'000;
inline constexpr std::uint32_t max_batch = 100'000'000;  // sequences, and micro-batches
inline constexpr std::uint64_t max_iterations = 1'000'000'000'000;
inline constexpr std::int32_t max_priority = 1'000'000;  // absolute value
inline constexpr std::uint32_t max_gpus = 1'000'000;
inline constexpr std::uint32_t max_stages = 100'000;  // of a slot job's pipeline
inline constexpr std::uint32_t max_pipelines = 100'000;
inline constexpr std::uint32_t max_pipeline_microbatches = 100'000;
/// Stages x pipelines x micro-batches: the size of an iteration's schedule.
inline constexpr std::uint64_t max_schedule_steps = 10'000'000;
inline constexpr std::uint32_t max_tensor_parallel = 64;
inline constexpr std::uint32_t max_lora_rank = 65'536;
inline constexpr std::uint32_t max_connections = 4096;
inline constexpr std::uint32_t max_restarts = 1000;
inline constexpr double max_kv_gb = 1e6;
inline constexpr std::uint32_t max_running_sequences = 4096;  // decoded together
inline constexpr std::uint32_t max_decoder_threads = 1024;
inline constexpr std::uint32_t max_sequences = 65'536;  // of a decoder, those that wait included
inline constexpr double max_ttft_s = 3600;
inline constexpr std::uint32_t max_guests = 1000;  // of a prefill pipeline
inline constexpr std::uint32_t max_look_ahead = 10'000;
inline constexpr std::uint32_t max_chunk = 1'000'000;  // tokens
inline constexpr double max_seconds = 1e15;         // slo_s, deadline_s; also the limit of budget
inline constexpr std::size_t max_gpu_types = 1000;  // of an elastic program
inline constexpr std::size_t max_rates = 1000;      // of an elastic program
inline constexpr double max_samples_per_s = 1e12;
inline constexpr double max_grace_s = 86'400;                        // also of a training
inline constexpr std::size_t max_words = 65'536;                     // of the command line
inline constexpr std::size_t max_spec_bytes = std::size_t{1} << 20;  // of all text together

}  // namespace troupe::admission
