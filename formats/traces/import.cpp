#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "formats/parse/csv.hpp"
#include "formats/traces/trace.hpp"

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t trace_limit_bytes = 512u << 20;
constexpr double day_s = 86'400;

/// Keeps the rows inside the window, with times relative to its start. Before, times are absolute;
/// `dated`: since 1970, and `from` may be a date.
template <class Row>
void cut(findings& found, std::vector<Row>& rows, double Row::*when, const trace_window& w,
         bool dated) {
  if (!found.good()) return;
  std::stable_sort(rows.begin(), rows.end(), [&](auto& a, auto& b) { return a.*when < b.*when; });
  if (rows.empty()) return found.add(0, "", "no rows");
  double from = rows.front().*when;
  // Days count from midnight of a dated trace's first day.
  if (!w.from.empty()) {
    const auto days = parse_number(w.from);
    const auto date = dated ? parse_timestamp(w.from) : std::nullopt;
    if (!days && !date)
      return found.add(0, "",
                       fmt::format("cannot start at '{}'; expected {}", shown(w.from),
                                   dated ? "a date such as 2017-12-21, or a number of days"
                                         : "a number of days"));
    const double first = dated ? std::floor(from / day_s) * day_s : 0;
    from = date ? *date : first + *days * day_s;
  }
  if (!(w.hours >= 0)) return found.add(0, "", "the window's hours must not be negative");
  const double until =
      w.hours > 0 ? from + w.hours * 3600 : std::numeric_limits<double>::infinity();
  std::erase_if(rows, [&](const Row& r) { return r.*when < from || r.*when >= until; });
  for (auto& r : rows) r.*when = std::round((r.*when - from) * 1e6) / 1e6;
  if (rows.empty())
    found.add(0, "",
              fmt::format("no rows in the window (from '{}', {:g} hours)", shown(w.from), w.hours));
}

double timestamp(csv_reader& csv, std::string_view column) {
  const auto t = parse_timestamp(csv.field(column));
  if (!t)
    csv.fail(column, fmt::format("found '{}', expected a time such as 2017-10-09 07:01:55, with or "
                                 "without a fraction and a zone (+02:00, Z, PDT)",
                                 shown(csv.field(column))));
  return t.value_or(0);
}

}  // namespace

expected<std::vector<trace_row>> import_philly(const fs::path& file, const trace_window& window) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  csv_reader csv{found, *text};
  csv.expect({"timestamp", "duration", "num_gpus", "cluster"}, {"gpu_time"});
  std::vector<trace_row> rows;
  while (csv.next()) {
    trace_row r;
    r.job_id = fmt::format("philly-{}", csv.line() - 1);  // the published rows have no names
    r.submit_s = timestamp(csv, "timestamp");
    r.duration_s = csv.number("duration", {0, 1e9, true});
    r.gpus = static_cast<std::uint32_t>(csv.whole("num_gpus", {1, 1e6}));
    if (window.group.empty() || csv.field("cluster") == window.group) rows.push_back(std::move(r));
  }
  if (found.good() && rows.empty() && !window.group.empty())
    found.add(0, "", fmt::format("no rows for virtual cluster '{}'", shown(window.group)));
  cut(found, rows, &trace_row::submit_s, window, true);
  if (!found.good()) return found.result();
  return rows;
}

expected<std::vector<trace_row>> import_itp(const fs::path& file, const trace_window& window) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  csv_reader csv{found, *text};
  csv.expect({"job_id", "submission_time", "duration", "num_gpu"}, {});
  std::vector<trace_row> rows;
  std::set<std::string> seen;
  while (csv.next()) {
    trace_row r;
    r.job_id = csv.field("job_id");
    if (!is_name(r.job_id) || !seen.insert(r.job_id).second)
      csv.fail("job_id", fmt::format("found '{}', expected a unique name", shown(r.job_id)));
    r.submit_s = csv.number("submission_time", {0, 1e10});
    r.duration_s = csv.number("duration", {0, 1e9, true});
    r.gpus = static_cast<std::uint32_t>(csv.whole("num_gpu", {1, 1e6}));
    rows.push_back(std::move(r));
  }
  cut(found, rows, &trace_row::submit_s, window, false);
  if (!found.good()) return found.result();
  return rows;
}

expected<std::vector<inference_row>> import_azure_llm(const fs::path& file,
                                                      const trace_window& window) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  csv_reader csv{found, *text};
  csv.expect({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, {});
  std::vector<inference_row> rows;
  while (csv.next())
    rows.push_back({timestamp(csv, "TIMESTAMP"),
                    static_cast<std::uint32_t>(csv.whole("ContextTokens", {0, 1e8})),
                    static_cast<std::uint32_t>(csv.whole("GeneratedTokens", {0, 1e8}))});
  cut(found, rows, &inference_row::arrival_s, window, true);
  if (!found.good()) return found.result();
  return rows;
}

}  // namespace troupe::formats
