#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "messages/base/reason.hpp"
#include "messages/domain/job.hpp"

// Limits of job specifications. job_keys.hpp has the limits of each key; the reader of job files
// uses them for errors with line numbers; the controller checks every submission before it is
// written to the journal, since clients may be other programs. Everything that determines the
// controller's work or memory is limited.

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

/// Valid names of hosts and jobs: letters, digits, '.', '_' and '-', at most 64, not beginning with
/// '-' or '.'.
bool is_name(std::string_view name);
/// A valid name of an environment variable, at most 256 bytes.
bool is_variable(std::string_view name);
/// Text made safe for terminals: control characters escaped, truncated after 60 bytes.
std::string shown(std::string_view text);

/// An invalid field of a job.
struct objection {
  std::string key;      // the top-level key of the job file
  std::string problem;  // a sentence without the key, e.g. "found 0, expected ..."
};

/// Models of these families are given as operators, those of others by their sizes.
bool is_given_as_operators(std::string_view family);
/// A contradiction between the sizes of a transformer; heads must not be 0.
std::optional<objection> objection_to(const model& m);

/// The first problem of a decoder (`serve:`), or of how bubbles are lent (`bubbles:`); its key is
/// one of that map. `has_files`: guests really run, and need the model's folder.
std::optional<objection> objection_to(const serving& s);
std::optional<objection> objection_to(const bubble_lending& b, bool has_files);

/// The first problem of `elastic:`; its key is one of the job file.
std::optional<objection> objection_to_elastic(const job_spec& job);

/// "found 8, expected at most max_gpus (4)"
std::string more_than_max_gpus(const job_spec& job);

/// The first problem of a job, or nothing. Checks the job alone: whether a cluster can run it is up
/// to the planners.
std::optional<objection> objection_to(const job_spec& job);

/// The same, as a reason: "layers: found 4000, expected a whole number from 1 to 2000".
expected<void> admit(const job_spec& job);

}  // namespace troupe::admission
