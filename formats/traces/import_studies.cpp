#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "formats/traces/importers.hpp"
#include "formats/traces/importing.hpp"

// The workloads of published simulators.

namespace troupe::formats {

namespace fs = std::filesystem;

// Sia (Jayaram Subramanya et al., SOSP 2023) and Pollux: a row has an application of their
// simulator, whose speed comes from measured tables (--throughputs), and no duration.
expected<imported_trace> import_sia(const fs::path& file, const trace_window& window) {
  const auto row = [](csv_reader& csv, row_sink& sink) {
    trace_row r;
    r.job_id = csv.field("name");
    r.submit_s = csv.number("time", trace_seconds);
    r.model = csv.field("application");
    if (r.model.empty()) csv.fail("application", "found nothing, expected a name");
    r.gpus = static_cast<std::uint32_t>(csv.whole("num_replicas", {1, 1e6}));
    r.global_batch = static_cast<std::uint32_t>(csv.whole("batch_size", {1, 1e8}));
    sink.add(csv, "name", std::move(r));
  };
  return import_csv(file, window, false,
                    {"name", "time", "application", "num_replicas", "batch_size"}, {"samples"},
                    row);
}

// ElasticFlow (Gu et al., ASPLOS 2023): iterations of a named model, and a deadline (`ddl`) as a
// time, which becomes relative to the submission.
expected<imported_trace> import_elasticflow(const fs::path& file, const trace_window& window) {
  const auto row = [&](csv_reader& csv, row_sink& sink) {
    trace_row r;
    r.job_id = csv.field("job_id");
    r.submit_s = csv.number("submit_time", trace_seconds);
    r.iterations = static_cast<std::uint64_t>(csv.whole("iteration", {1, 1e12}));
    r.model = csv.field("model_name");
    r.global_batch = static_cast<std::uint32_t>(csv.whole("batch_size", {1, 1e8}));
    if (never_ran_in(csv, "duration", window) || never_ran_in(csv, "num_gpu", window))
      return sink.leave_out(never_ran);
    r.gpus = static_cast<std::uint32_t>(csv.whole("num_gpu", {1, 1e6}));
    r.duration_s = csv.number("duration", {0, 1e9, true});
    if (!csv.field("ddl").empty()) {
      const double deadline = csv.number("ddl", trace_seconds);
      r.deadline_s = deadline - r.submit_s;
      if (!(*r.deadline_s > 0)) sink.expect_error("with a deadline before their submission");
      if (!(*r.deadline_s > 0))
        csv.fail("ddl", fmt::format("found {}, expected a time after submit_time ({})",
                                    csv.field("ddl"), csv.field("submit_time")));
    }
    sink.add(csv, "job_id", std::move(r));
  };
  return import_csv(
      file, window, false,
      {"job_id", "submit_time", "iteration", "model_name", "batch_size", "num_gpu", "duration"},
      {"ddl"}, row);
}

namespace {

// Gavel (Narayanan et al., OSDI 2020) has no header and four layouts, which differ in their number
// of fields.
/// Where a layout of Gavel's traces has its fields, by their number.
struct gavel_layout {
  std::size_t fields, steps, gpus, arrival;
};
constexpr gavel_layout gavel_layouts[] = {{6, 3, 5, 4}, {7, 4, 6, 5}, {9, 4, 5, 8}, {10, 5, 6, 9}};

/// A line of a tab-separated file.
class tabbed_line {
 public:
  tabbed_line(findings& found, int line, std::string_view text) : found_{found}, line_{line} {
    for (;;) {
      const auto tab = text.find('\t');
      fields_.push_back(text.substr(0, tab));
      if (tab == text.npos) return;
      text.remove_prefix(tab + 1);
    }
  }

  std::size_t count() const { return fields_.size(); }
  std::string_view field(std::size_t i) const { return fields_[i]; }
  double number(std::size_t i, const char* what, range r) {
    value v;
    v.what = value::kind::scalar;
    v.line = line_;
    v.text = std::string{fields_[i]};
    double x = 0;
    read_number(found_, v, what, x, r);
    return x;
  }
  void fail(std::string_view problem, std::string_view what = {}) {
    found_.add(line_, what, problem);
  }

 private:
  findings& found_;
  int line_;
  std::vector<std::string_view> fields_;
};

// The type of a job, such as "ResNet-18 (batch size 32)", is the name in the tables of speeds.
trace_row gavel_row(tabbed_line& line, int number) {
  trace_row r;
  const gavel_layout* layout = nullptr;
  for (const auto& l : gavel_layouts)
    if (l.fields == line.count()) layout = &l;
  if (!layout) {
    line.fail(fmt::format("found {} fields between tabs, expected 6, 7, 9 or 10", line.count()));
    return r;
  }
  r.job_id = fmt::format("gavel-{}", number);  // the published rows have no names
  r.model = line.field(0);
  if (r.model.empty()) line.fail("found nothing, expected its name", "job type");
  r.submit_s = line.number(layout->arrival, "arrival time", trace_seconds);
  r.gpus = static_cast<std::uint32_t>(line.number(layout->gpus, "scale factor", {1, 1e6}));
  const double steps = line.number(layout->steps, "total steps", {1, 1e12});
  if (steps != std::floor(steps))
    line.fail(fmt::format("found {:g}, expected a whole number", steps), "total steps");
  r.iterations = static_cast<std::uint64_t>(steps);
  return r;
}

}  // namespace

expected<imported_trace> import_gavel(const fs::path& file, const trace_window& window) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  row_sink sink{found, window};
  std::string_view left = *text;
  for (int number = 1; !left.empty() && found.good(); ++number) {
    const auto end = std::min(left.find('\n'), left.size());
    auto words = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    if (words.ends_with('\r')) words.remove_suffix(1);
    if (words.empty()) continue;
    tabbed_line line{found, number, words};
    sink.keep(gavel_row(line, number), {});
    if (!sink.end_row()) break;
  }
  return std::move(sink).result(false);
}

}  // namespace troupe::formats
