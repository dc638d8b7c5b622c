#include <algorithm>
#include <optional>

#include "formats/traces/importers.hpp"
#include "formats/traces/importing.hpp"

// Microsoft Philly's cluster_job_log.

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

/// One job of the list. The first error is kept in `found`.
// The original log (Jeon et al., ATC 2019) has attempts: a job that failed was started again. The
// duration is the sum of all attempts that have both times, as the work of each was done; the GPUs
// are those of the last attempt that had any.
class philly_job {
 public:
  philly_job(findings& found, const value& job) : found_{found}, job_{job} {}

  void pour(row_sink& sink) {
    const auto* id = key(job_, "jobid");
    const auto* attempts = key(job_, "attempts");
    const auto* submitted = key(job_, "submitted_time");
    const auto* group = key(job_, "vc");
    if (!id || !attempts || !submitted || !group) return;
    if (attempts->what != value::kind::list)
      return found_.add(attempts->line, "attempts", "found {}, expected a list",
                        describe(*attempts));
    for (const auto& attempt : attempts->items) add(attempt, sink);
    const auto submit_s = time(*submitted, "submitted_time");
    if (!found_.good()) return;
    if (!sink.claim(id->text)) {
      sink.expect_error(name_taken);
      return found_.add(id->line, "jobid", "found '{}', expected a unique name", shown(id->text));
    }
    if (runs_) return sink.leave_out(still_running);
    if (!(duration_s_ > 0)) return sink.leave_out(never_ran);
    if (gpus_ == 0) return sink.leave_out(without_gpus);
    if (!submit_s) return sink.leave_out("without a time of submission");
    if (untimed_) sink.note_change("attempts without times not counted");
    trace_row r;
    r.job_id = id->text;
    r.submit_s = *submit_s;
    r.duration_s = duration_s_;
    r.gpus = gpus_;
    sink.keep(std::move(r), group->text);
  }

 private:
  const value* key(const value& map, std::string_view name) {
    if (map.has(name)) return &map.items[map.index_of(name)];
    found_.add(map.line, "", "found {}, expected a map with '{}'", describe(map), name);
    return nullptr;
  }

  // "None" is a Python value in the data, and stands for an unknown time.
  std::optional<double> time(const value& v, std::string_view place) {
    if (v.what == value::kind::nothing || v.text == "None") return {};
    const auto t = parse_timestamp(v.text);
    if (!t)
      found_.add(v.line, place, "found {}, expected a time such as 2017-10-09 07:01:55, or None",
                 describe(v));
    return t;
  }

  // An attempt that has begun and not ended was cut off by the end of the log, if it is the last.
  void add(const value& attempt, row_sink& sink) {
    const auto* start = key(attempt, "start_time");
    const auto* end = key(attempt, "end_time");
    const auto* detail = key(attempt, "detail");
    if (!start || !end || !detail) return;
    const auto start_s = time(*start, "start_time"), end_s = time(*end, "end_time");
    runs_ = start_s && !end_s;
    if (!start_s || !end_s) {
      untimed_ = true;
      return;
    }
    if (*end_s < *start_s) {
      sink.expect_error(ended_early);
      return found_.add(end->line, "end_time", "found '{}', expected at least start_time ('{}')",
                        shown(end->text), shown(start->text));
    }
    duration_s_ += *end_s - *start_s;
    std::size_t gpus = 0;
    for (const auto& node : detail->items)
      if (const auto* on = key(node, "gpus")) gpus += on->items.size();
    if (gpus > 0) gpus_ = static_cast<std::uint32_t>(gpus);
  }

  findings& found_;
  const value& job_;
  double duration_s_ = 0;
  std::uint32_t gpus_ = 0;  // of the last attempt that had some
  bool runs_ = false;       // the last attempt has not ended
  bool untimed_ = false;
};

}  // namespace

// The file is larger than a parsed tree may be, so jobs are read one by one.
expected<imported_trace> import_philly_json(const fs::path& file, const trace_window& window) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  row_sink sink{found, window};
  const auto read = for_each_in_json_list(file.string(), *text, [&](const value& job) {
    philly_job{found, job}.pour(sink);
    return sink.end_row();
  });
  if (!found.good()) return found.result();
  if (!read) return refuse(read.error());
  return std::move(sink).result(true);
}

}  // namespace troupe::formats
