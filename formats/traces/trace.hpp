#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"

// Traces as CSV, and the importers of published ones: docs/traces.md.

namespace troupe::formats {

/// One job of a trace. Fields that the trace lacks are empty; a workload rule fills them in.
struct trace_row {
  std::string job_id;
  double submit_s = 0;    // since the trace's start
  double duration_s = 0;  // 0: unknown; what measured speeds replay may have iterations alone
  std::uint32_t gpus = 1;
  std::string gpu_type;
  std::string model;  // a shipped model's name
  std::optional<std::uint32_t> global_batch;
  std::optional<std::uint64_t> iterations;
  std::optional<double> deadline_s;  // after submission
  std::vector<std::string> dataset_card;
  bool merge = true;  // its user agrees to merging

  bool operator==(const trace_row&) const = default;
};

/// One request of an inference trace.
struct inference_row {
  double arrival_s = 0;  // since the trace's start
  std::uint32_t prompt_tokens = 0;
  std::uint32_t generated_tokens = 0;

  bool operator==(const inference_row&) const = default;
};

/// The window of a published trace to import. Times are relative to the window's start.
struct trace_window {
  std::string from;  // "2017-12-21", "2017-12-21 08:00:00", or days after the first row; empty: the
                     // first row
  double hours = 0;  // 0: to the end
  std::string group;  // one virtual cluster, where rows name theirs; empty: all
  bool skip = false;  // rows that never ran or cannot be used are left out where they are refused
};

/// A published trace after its import.
struct imported_trace {
  std::vector<trace_row> rows;
  std::map<std::string, std::size_t> left_out;  // rows, by why
  std::map<std::string, std::size_t> changed;   // rows, by what is not as published
};

/// The same of a trace of requests.
struct imported_requests {
  std::vector<inference_row> rows;
  std::map<std::string, std::size_t> left_out;  // rows, by why
};

/// Troupe's own CSV, ordered by submission (file order among equals). '#' begins a comment line.
expected<std::vector<trace_row>> load_trace(const std::filesystem::path& file);
/// The same as text, with only the columns that some row uses; `comment` comes first, as '#' lines.
std::string to_csv(std::span<const trace_row> rows, const std::string& comment = {});

expected<std::vector<inference_row>> load_inference_trace(const std::filesystem::path& file);
std::string to_csv(std::span<const inference_row> rows, const std::string& comment = {});

/// Any of the published traces of jobs, by the format's name.
expected<imported_trace> import_jobs(std::string_view format, const std::filesystem::path& file,
                                     const trace_window& window = {});
std::vector<std::string> job_trace_formats();

/// Azure's LLM inference traces of 2023 and 2024: TIMESTAMP,ContextTokens,GeneratedTokens.
expected<imported_requests> import_azure_llm(const std::filesystem::path& file,
                                             const trace_window& window = {});

/// Replaces a file with write_whole_file(); writes to a device or a pipe directly.
expected<void> save_text(const std::filesystem::path& file, const std::string& text);

/// "2017-10-09 07:01:55[.fraction][zone]" or a date as seconds since 1970. A zone is an offset as
/// +02:00, Z, UTC, GMT or one of the American zones (PST, PDT, ...), and the time is converted to
/// UTC; a time without one is taken as it is written.
std::optional<double> parse_timestamp(std::string_view text);

}  // namespace troupe::formats
