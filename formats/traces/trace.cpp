#include "formats/traces/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <system_error>

#include "formats/parse/csv.hpp"
#include "formats/traces/trace_limits.hpp"
#include "messages/base/whole_file.hpp"

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

// The house's format of traces: CSV with four columns that every row has and eight that a source
// may have. Times are seconds from the begin of the trace.
constexpr range time_s{0, 1e10};
constexpr range trace_duration{0, 1e9, true};
constexpr range gpu_count{1, 1e6};

std::vector<std::string> keywords(std::string_view field) {
  std::vector<std::string> out;
  while (!field.empty()) {
    const auto end = field.find(';');
    if (const auto word = field.substr(0, end); !word.empty()) out.emplace_back(word);
    field.remove_prefix(end == std::string_view::npos ? field.size() : end + 1);
  }
  return out;
}

trace_row read_row(csv_reader& csv) {
  trace_row row;
  row.job_id = csv.field("job_id");
  if (!is_name(row.job_id))
    csv.fail("job_id", "found '{}', expected a name of letters, digits, '.', '_' and '-'",
             shown(row.job_id));
  row.submit_s = csv.number("submit_s", time_s);
  if (!csv.field("duration_s").empty()) row.duration_s = csv.number("duration_s", trace_duration);
  row.gpus = static_cast<std::uint32_t>(csv.whole("gpus", gpu_count));
  row.gpu_type = csv.field("gpu_type");
  row.model = csv.field("model");
  if (!csv.field("global_batch").empty())
    row.global_batch = static_cast<std::uint32_t>(csv.whole("global_batch", {1, 1e8}));
  if (!csv.field("iterations").empty())
    row.iterations = static_cast<std::uint64_t>(csv.whole("iterations", {1, 1e12}));
  if (!csv.field("deadline_s").empty()) row.deadline_s = csv.number("deadline_s", trace_duration);
  row.dataset_card = keywords(csv.field("dataset_card"));
  if (const auto merge = csv.field("merge"); merge == "false")
    row.merge = false;
  else if (!merge.empty() && merge != "true")
    csv.fail("merge", "found '{}', expected true or false", shown(merge));
  return row;
}

/// A column that a trace may lack, and its fields; empty: the row has no value.
struct optional_column {
  const char* name;
  std::string (*text)(const trace_row& r);
};

/// The shortest text that reads back as the same number.
template <class Number>
std::string shortest(Number x) {
  return fmt::format("{}", x);
}
template <class Number>
std::string shortest(const std::optional<Number>& x) {
  return x ? shortest(*x) : "";
}

constexpr optional_column optional_columns[] = {
    {"gpu_type", [](const trace_row& r) { return r.gpu_type; }},
    {"model", [](const trace_row& r) { return r.model; }},
    {"global_batch", [](const trace_row& r) { return shortest(r.global_batch); }},
    {"iterations", [](const trace_row& r) { return shortest(r.iterations); }},
    {"deadline_s", [](const trace_row& r) { return shortest(r.deadline_s); }},
    {"dataset_card",
     [](const trace_row& r) { return fmt::format("{}", fmt::join(r.dataset_card, ";")); }},
    {"merge", [](const trace_row& r) { return std::string{r.merge ? "" : "false"}; }},
};

std::string commented(const std::string& comment) {
  std::string out;
  for (std::size_t at = 0; at < comment.size();) {
    const auto end = std::min(comment.find('\n', at), comment.size());
    out += "# " + comment.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

std::string duration_field(const trace_row& row) {
  return row.duration_s > 0 ? shortest(row.duration_s) : "";
}

}  // namespace

// Names must be unique, as they seed the random numbers of a job. The order of rows with the same
// time is kept.
expected<std::vector<trace_row>> load_trace(const fs::path& file) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  csv_reader csv{found, *text};
  csv.expect(
      {"job_id", "submit_s", "duration_s", "gpus"},
      {"gpu_type", "model", "global_batch", "iterations", "deadline_s", "dataset_card", "merge"});
  std::vector<trace_row> rows;
  std::set<std::string> seen;
  while (csv.next()) {
    rows.push_back(read_row(csv));
    if (!seen.insert(rows.back().job_id).second)
      csv.fail("job_id", "duplicate name '{}'", rows.back().job_id);
  }
  if (found.good() && rows.empty()) found.add(csv.line(), "", "no rows below the header");
  std::ranges::stable_sort(rows, {}, &trace_row::submit_s);
  return found.result(std::move(rows));
}

// Columns without any value are left out. Text in, text out: reading the result gives the same
// rows.
std::string to_csv(std::span<const trace_row> rows, const std::string& comment) {
  std::vector<optional_column> used;
  std::ranges::copy_if(optional_columns, std::back_inserter(used), [&](const auto& column) {
    return std::ranges::any_of(rows, [&](const auto& r) { return !column.text(r).empty(); });
  });
  auto out = commented(comment) + "job_id,submit_s,duration_s,gpus";
  for (const auto& column : used) out += fmt::format(",{}", column.name);
  for (const auto& r : rows) {
    out += fmt::format("\n{},{},{},{}", r.job_id, shortest(r.submit_s), duration_field(r), r.gpus);
    for (const auto& column : used) out += "," + column.text(r);
  }
  return out + "\n";
}

expected<std::vector<inference_row>> load_inference_trace(const fs::path& file) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  csv_reader csv{found, *text};
  csv.expect({"arrival_s", "prompt_tokens", "generated_tokens"}, {});
  std::vector<inference_row> rows;
  while (csv.next())
    rows.push_back({csv.number("arrival_s", time_s),
                    static_cast<std::uint32_t>(csv.whole("prompt_tokens", {0, 1e8})),
                    static_cast<std::uint32_t>(csv.whole("generated_tokens", {0, 1e8}))});
  if (found.good() && rows.empty()) found.add(csv.line(), "", "no rows below the header");
  std::ranges::stable_sort(rows, {}, &inference_row::arrival_s);
  return found.result(std::move(rows));
}

std::string to_csv(std::span<const inference_row> rows, const std::string& comment) {
  auto out = commented(comment) + "arrival_s,prompt_tokens,generated_tokens\n";
  for (const auto& r : rows)
    out += fmt::format("{},{},{}\n", shortest(r.arrival_s), r.prompt_tokens, r.generated_tokens);
  return out;
}

// A rename would replace /dev/stdout or a pipe by a file.
expected<void> save_text(const fs::path& file, const std::string& text) {
  const auto failure = [&](const std::string& problem) {
    return refuse(complaint(file.string(), 0, "", problem));
  };
  // A device or a pipe is written directly; a file is replaced atomically.
  std::error_code error;
  if (!fs::exists(file, error) || fs::is_regular_file(file, error))
    return write_whole_file(file.string(), text);
  std::FILE* out = std::fopen(file.c_str(), "wb");
  if (!out) return failure(fmt::format("cannot be written: {}", std::strerror(errno)));
  const bool written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  if (std::fclose(out) != 0 || !written)
    return failure(fmt::format("write error: {}", std::strerror(errno)));
  return {};
}

}  // namespace troupe::formats
