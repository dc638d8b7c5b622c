#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/parse/csv.hpp"
#include "formats/traces/trace.hpp"
#include "formats/traces/trace_limits.hpp"

// Shared by the importers of published traces.

namespace troupe::formats {

inline constexpr range trace_seconds{0, 1e10};
inline constexpr double day_s = 86'400;

inline constexpr const char* never_ran = "never ran";
inline constexpr const char* without_gpus = "without GPUs";
inline constexpr const char* still_running = "still running at the end of the trace";
inline constexpr const char* ended_early = "ended before they began";
inline constexpr const char* name_taken = "with a name that is taken or cannot be one";

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
      return found.add(
          0, "", "cannot start at '{}'; expected {}", shown(w.from),
          dated ? "a date such as 2017-12-21, or a number of days" : "a number of days");
    const double first = dated ? std::floor(from / day_s) * day_s : 0;
    from = date ? *date : first + *days * day_s;
  }
  if (!(w.hours >= 0)) return found.add(0, "", "the window's hours must not be negative");
  const double until =
      w.hours > 0 ? from + w.hours * 3600 : std::numeric_limits<double>::infinity();
  std::erase_if(rows, [&](const Row& r) { return r.*when < from || r.*when >= until; });
  for (auto& r : rows) r.*when = std::round((r.*when - from) * 1e6) / 1e6;
  if (rows.empty())
    found.add(0, "", "no rows in the window (from '{}', {:g} hours)", shown(w.from), w.hours);
}

/// The time in a column; on error 0.
inline double timestamp(csv_reader& csv, std::string_view column) {
  const auto t = parse_timestamp(csv.field(column));
  if (!t)
    csv.fail(column,
             "found '{}', expected a time such as 2017-10-09 07:01:55, with or "
             "without a fraction and a zone (+02:00, Z, PDT)",
             shown(csv.field(column)));
  return t.value_or(0);
}

/// A row of 0 s never ran. Refused unless such rows are to be left out.
// Whether such rows count decides the load of an experiment, so leaving them out takes an option of
// the user.
inline bool never_ran_in(csv_reader& csv, const char* column, const trace_window& window) {
  return window.skip && parse_number(csv.field(column)) == 0.0;
}

/// Rows with the counts of those that are not there. What a row gives counts at its end.
class row_sink {
 public:
  row_sink(findings& found, const trace_window& window) : found_{found}, window_{window} {}

  void leave_out(std::string why) { left_out_ = std::move(why); }
  void note_change(const char* what) { changed_.push_back(what); }
  /// Why the row cannot be used, if its next error is its first; for counting it.
  void expect_error(const char* why) {
    if (found_.good()) unusable_ = why;
  }
  /// `group`: the row's virtual cluster.
  void add(csv_reader& csv, std::string_view column, trace_row row, std::string_view group = {}) {
    if (!found_.good()) return;
    if (!claim(row.job_id)) {
      expect_error(name_taken);
      return csv.fail(column, "found '{}', expected a unique name", shown(row.job_id));
    }
    keep(std::move(row), group);
  }
  void keep(trace_row row, std::string_view group) {
    if (window_.group.empty() || group == window_.group) row_ = std::move(row);
  }
  /// False: the name is taken.
  bool claim(const std::string& name) { return is_name(name) && names_.insert(name).second; }

  /// To be called after each row. One that cannot be used (an error was found) is left out and
  /// counted if the user wants that. False: its error ends the import.
  bool end_row() {
    auto row = std::exchange(row_, {});
    auto left_out = std::exchange(left_out_, {});
    const auto changed = std::exchange(changed_, {});
    const auto unusable = std::exchange(unusable_, nullptr);
    if (!found_.good()) {
      if (!window_.skip) {
        found_.advise("; --skip leaves out rows that cannot be used, and counts them");
        return false;
      }
      left_out = unusable                 ? unusable
                 : found_.place().empty() ? "with missing or surplus fields"
                                          : "with an unusable " + found_.place();
      found_.forget();
    } else if (left_out.empty()) {
      for (const auto* what : changed) ++out_.changed[what];
      if (row) out_.rows.push_back(std::move(*row));
      return true;
    }
    ++out_.left_out[left_out];
    return true;
  }

  const std::map<std::string, std::size_t>& left_out() const { return out_.left_out; }

  /// The rows in the window; `dated`: their times are since 1970.
  expected<imported_trace> result(bool dated) && {
    if (found_.good() && out_.rows.empty() && !window_.group.empty())
      found_.add(0, "", "no rows for virtual cluster '{}'", shown(window_.group));
    cut(found_, out_.rows, &trace_row::submit_s, window_, dated);
    return found_.result(std::move(out_));
  }

 private:
  findings& found_;
  const trace_window& window_;
  imported_trace out_;
  std::set<std::string> names_;
  // All belong to the present row.
  std::optional<trace_row> row_;
  std::string left_out_;
  std::vector<const char*> changed_;
  const char* unusable_ = nullptr;
};

/// Gives each row of a CSV file to `row`, and ends it in the sink.
template <class Row>
void for_each_row(csv_reader& csv, const findings& found, row_sink& sink, Row row) {
  while (found.good()) {
    if (csv.next())
      row();
    else if (found.good())
      return;
    if (!sink.end_row()) return;
  }
}

/// Imports a CSV file with these columns: `row` gives each of its rows to the sink. `dated`: times
/// are since 1970.
template <class Row>
expected<imported_trace> import_csv(const std::filesystem::path& file, const trace_window& window,
                                    bool dated, const std::vector<std::string>& required,
                                    const std::vector<std::string>& optional, Row row) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  csv_reader csv{found, *text};
  csv.expect(required, optional);
  row_sink sink{found, window};
  for_each_row(csv, found, sink, [&] { row(csv, sink); });
  return std::move(sink).result(dated);
}

}  // namespace troupe::formats
