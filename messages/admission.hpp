#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/job.hpp"
#include "messages/reason.hpp"

// What a job may ask for. The reader of job files applies it to say what is wrong in which line;
// the controller applies it to every submission before it is written to the journal, since a client
// need not be ours. Whatever sizes work or memory of the controller has a bound here.

namespace troupe::admission {

inline constexpr std::uint32_t max_layers = 2000;
inline constexpr std::size_t max_operators = 4000;  // as many as max_layers has sublayers
inline constexpr std::uint32_t max_hidden = 1'000'000;
inline constexpr std::uint32_t max_heads = 100'000;
inline constexpr std::uint32_t max_intermediate = 10'000'000;
inline constexpr std::uint32_t max_sequence = 100'000'000;
inline constexpr std::uint32_t max_vocabulary = 100'000'000;
inline constexpr std::uint32_t max_batch = 100'000'000;  // sequences, and micro-batches
inline constexpr std::uint64_t max_iterations = 1'000'000'000'000;
inline constexpr std::int32_t max_priority = 1'000'000;  // either way
inline constexpr std::uint32_t max_gpus = 1'000'000;
inline constexpr std::uint32_t max_stages = 100'000;  // of a pipeline study
inline constexpr std::uint32_t max_pipelines = 100'000;
inline constexpr std::uint32_t max_pipeline_microbatches = 100'000;
/// Stages x pipelines x micro-batches: what one iteration's schedule is made of.
inline constexpr std::uint64_t max_schedule_steps = 10'000'000;
inline constexpr std::uint32_t max_tensor_parallel = 64;
inline constexpr std::uint32_t max_lora_rank = 65'536;
inline constexpr std::uint32_t max_connections = 4096;
inline constexpr std::uint32_t max_restarts = 1000;
inline constexpr double max_seconds = 1e15;       // slo_s, deadline_s; budget too
inline constexpr std::size_t max_words = 65'536;  // of the command line
inline constexpr std::size_t max_spec_bytes = std::size_t{1} << 20;  // of all text together

/// Letters, digits, '.', '_' and '-', 64 at most and not first '-' or '.': what may name a host or
/// a job.
bool is_name(std::string_view name);
/// A word that a shell takes as a variable's name, 256 bytes at most.
bool is_variable(std::string_view name);
/// Text as it may be shown on a terminal: control characters escaped, and cut after 60 bytes.
std::string shown(std::string_view text);

/// What is wrong with a job.
struct objection {
  std::string key;      // the job file's key at the top level that says so
  std::string problem;  // a sentence without the key, e.g. "found 0, expected ..."
};

/// How the sizes of a transformer contradict each other; heads must not be 0.
std::optional<objection> objection_to(const model& m);

/// The first thing that is wrong with it, or nothing. Looks at the job alone: whether some cluster
/// could ever run it is the planners' question.
std::optional<objection> objection_to(const job_spec& job);

/// The same, as a reason: "layers: found 4000, expected a whole number from 1 to 2000".
expected<void> admit(const job_spec& job);

}  // namespace troupe::admission
