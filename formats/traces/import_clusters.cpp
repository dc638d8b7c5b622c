#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "formats/traces/importers.hpp"
#include "formats/traces/importing.hpp"

// The logs of production clusters.

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

constexpr const char* rounded_up = "parts of a GPU rounded up to whole ones";
constexpr const char* type_left_open = "GPU type left open: several, or not disclosed";

/// The logs' words for a missing value.
bool is_nothing(std::string_view field) {
  return field.empty() || field == "None" || field == "nan" || field == "NaN" || field == "NULL";
}

// MISC and similar groups hide the type in Alibaba's data; such a job may run on any type.
/// The catalogue's name of an Alibaba GPU type; none: it is not disclosed, or several.
std::optional<std::string> alibaba_gpu(std::string_view type) {
  static const std::pair<std::string_view, const char*> names[] = {
      {"T4", "T4"},   {"P100", "P100-16GB"},    {"V100", "V100-16GB"},
      {"A10", "A10"}, {"V100M16", "V100-16GB"}, {"V100M32", "V100-32GB"}};
  for (const auto& [name, gpu] : names)
    if (type == name) return gpu;
  return {};
}

void set_type(trace_row& row, row_sink& sink, std::string_view type) {
  if (is_nothing(type)) return;
  if (auto gpu = alibaba_gpu(type))
    row.gpu_type = std::move(*gpu);
  else
    sink.note_change(type_left_open);
}

/// From one time to another, both of the row; fails if the second comes first.
// A negative duration is damage of the file and no rounding: all times of a row come from one
// clock.
double seconds_between(csv_reader& csv, row_sink& sink, const char* from, const char* to) {
  const double first = csv.number(from, trace_seconds), last = csv.number(to, trace_seconds);
  if (last < first) {
    sink.expect_error(ended_early);
    csv.fail(to, "found {}, expected at least {} ({})", csv.field(to), csv.field(from), from);
  }
  return last - first;
}

}  // namespace

// SenseTime's Helios (Hu et al., SC 2021). `duration` is the time of running, without the queue;
// rows without GPUs are CPU jobs.
expected<imported_trace> import_helios(const fs::path& file, const trace_window& window) {
  const auto row = [](csv_reader& csv, row_sink& sink) {
    trace_row r;
    r.job_id = fmt::format("helios-{}", csv.field("job_id"));
    r.submit_s = timestamp(csv, "submit_time");
    const auto gpus = csv.whole("gpu_num", {0, 1e6});
    const bool started = !csv.has("start_time") || !is_nothing(csv.field("start_time"));
    r.duration_s =
        started && !is_nothing(csv.field("duration")) ? csv.number("duration", {0, 1e9}) : 0;
    if (gpus == 0) return sink.leave_out(without_gpus);
    if (r.duration_s == 0) return sink.leave_out(never_ran);
    r.gpus = static_cast<std::uint32_t>(gpus);
    sink.add(csv, "job_id", std::move(r), csv.field("vc"));
  };
  return import_csv(
      file, window, true, {"job_id", "gpu_num", "submit_time", "duration"},
      {"user", "vc", "cpu_num", "node_num", "state", "start_time", "end_time", "queue"}, row);
}

// Alibaba's OpenB (Weng et al., ATC 2023): pods that share GPUs in thousandths. This scheduler
// gives whole GPUs, so a part counts as one, which is noted.
expected<imported_trace> import_openb(const fs::path& file, const trace_window& window) {
  const auto row = [](csv_reader& csv, row_sink& sink) {
    trace_row r;
    r.job_id = csv.field("name");
    r.submit_s = csv.number("creation_time", trace_seconds);
    const auto gpus = csv.whole("num_gpu", {0, 1e6});
    const auto milli = csv.whole("gpu_milli", {0, 1000});
    if (gpus == 0) return sink.leave_out(without_gpus);
    if (is_nothing(csv.field("scheduled_time"))) return sink.leave_out(never_ran);
    if (is_nothing(csv.field("deletion_time"))) return sink.leave_out(still_running);
    r.duration_s = seconds_between(csv, sink, "scheduled_time", "deletion_time");
    if (r.duration_s == 0) return sink.leave_out(never_ran);
    if (milli < 1000) sink.note_change(rounded_up);
    r.gpus = static_cast<std::uint32_t>(gpus);
    set_type(r, sink, csv.field("gpu_spec"));
    sink.add(csv, "name", std::move(r));
  };
  return import_csv(
      file, window, false,
      {"name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time"},
      {"cpu_milli", "memory_mib", "gpu_spec", "qos", "pod_phase"}, row);
}

namespace {

// Alibaba's PAI (Weng et al., NSDI 2022) has a row for each task of a job: workers, parameter
// servers and others, each with instances. All tasks of a job run at the same time, so the job has
// the sum of their GPUs, from the first start to the last end.
/// A job of PAI: all its tasks together.
struct pai_job {
  double start_s = 0, end_s = 0;
  double gpus = 0;
  bool part = false;  // of a GPU
  bool never_ran = false, runs = false;
  bool unusable = false;  // a task of it is
  std::string type;
  bool types = false;  // several
};

class pai_jobs {
 public:
  /// A task that cannot be used makes its job unusable: the others are not all of its work.
  void add(csv_reader& csv, const findings& found, row_sink& sink) {
    const auto name = csv.field("job_name");
    auto [at, fresh] = by_name_.try_emplace(std::string{name});
    if (fresh) order_.push_back(at->first);
    auto& job = at->second;
    read(csv, sink, job);
    job.unusable |= !found.good();
  }

  // In the order of the file, not of the map: equal times keep their order.
  void pour(findings& found, row_sink& sink) const {
    for (const auto& name : order_) {
      if (by_name_.at(name).unusable) continue;  // its tasks are counted
      pour_job(found, sink, name, by_name_.at(name));
      if (!sink.end_row()) return;
    }
  }

 private:
  static void read(csv_reader& csv, row_sink& sink, pai_job& job) {
    const auto percent = is_nothing(csv.field("plan_gpu")) ? 0 : csv.number("plan_gpu", {0, 1e6});
    if (percent == 0) return;  // parameter servers and the like
    const auto count = csv.number("inst_num", {0, 1e6});
    job.part |= percent != 100 * std::ceil(percent / 100);
    job.gpus += std::ceil(percent / 100) * std::ceil(count);
    const auto type = csv.field("gpu_type");
    job.types |= !job.type.empty() && job.type != type;
    job.type = type;
    if (is_nothing(csv.field("start_time"))) {
      job.never_ran = true;
    } else if (is_nothing(csv.field("end_time"))) {
      job.runs = true;
    } else {
      const double taken = seconds_between(csv, sink, "start_time", "end_time");
      const double start = csv.number("start_time", trace_seconds);
      job.start_s = job.end_s > 0 ? std::min(job.start_s, start) : start;
      job.end_s = std::max(job.end_s, start + taken);
    }
  }

  static void pour_job(findings& found, row_sink& sink, const std::string& name,
                       const pai_job& job) {
    const double taken = job.end_s - job.start_s;
    if (job.gpus == 0) return sink.leave_out(without_gpus);
    if (job.runs) return sink.leave_out(still_running);
    if (job.never_ran || !(taken > 0)) return sink.leave_out(never_ran);
    if (!sink.claim(name)) {
      sink.expect_error(name_taken);
      return found.add(0, "job_name", "found '{}', expected a name", shown(name));
    }
    trace_row r;
    r.job_id = name;
    r.submit_s = job.start_s;
    r.duration_s = taken;
    r.gpus = static_cast<std::uint32_t>(std::min(job.gpus, 1e6));
    if (job.part) sink.note_change(rounded_up);
    set_type(r, sink, job.types ? "several" : job.type);
    sink.keep(std::move(r), {});
  }

  std::map<std::string, pai_job> by_name_;
  std::vector<std::string> order_;
};

}  // namespace

// Two passes: a job's tasks may be far apart in the file.
expected<imported_trace> import_pai(const fs::path& file, const trace_window& window) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  const std::vector<std::string> columns{"job_name",   "task_name", "inst_num", "status",
                                         "start_time", "end_time",  "plan_cpu", "plan_mem",
                                         "plan_gpu",   "gpu_type"};
  // The table is published without its header.
  const bool headed = text->find("job_name") < text->find('\n');
  auto csv = headed ? csv_reader{found, *text} : csv_reader{found, *text, columns};
  csv.expect(columns, {});
  pai_jobs jobs;
  row_sink sink{found, window};
  for_each_row(csv, found, sink, [&] { jobs.add(csv, found, sink); });
  if (found.good()) jobs.pour(found, sink);
  return std::move(sink).result(false);
}

}  // namespace troupe::formats
