#include <fmt/format.h>

#include <array>
#include <utility>

#include "formats/traces/importers.hpp"
#include "formats/traces/importing.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::formats {

// Importers turn published traces into the house's format (trace.hpp): a name, a time of
// submission, a duration, a number of GPUs, and whatever else the source has. Each is strict about
// columns and values, so that another release of a data set fails instead of being misread. What
// cannot be replayed is left out and counted by reason; what has to be changed (parts of a GPU,
// unknown types) is counted, too: an experiment can state both.
namespace fs = std::filesystem;

namespace {

// Philly with one CSV row per job, as later works publish it. Names are made from line numbers,
// which stay the same under every window.
expected<imported_trace> import_philly(const fs::path& file, const trace_window& window) {
  const auto row = [&](csv_reader& csv, row_sink& sink) {
    trace_row r;
    r.job_id = fmt::format("philly-{}", csv.line() - 1);  // the published rows have no names
    r.submit_s = timestamp(csv, "timestamp");
    if (never_ran_in(csv, "duration", window) || never_ran_in(csv, "num_gpus", window))
      return sink.leave_out(never_ran);
    r.duration_s = csv.number("duration", {0, 1e9, true});
    r.gpus = static_cast<std::uint32_t>(csv.whole("num_gpus", {1, 1e6}));
    sink.keep(std::move(r), csv.field("cluster"));
  };
  return import_csv(file, window, true, {"timestamp", "duration", "num_gpus", "cluster"},
                    {"gpu_time"}, row);
}

expected<imported_trace> import_itp(const fs::path& file, const trace_window& window) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  // ElasticFlow's later files have models and deadlines beside the same jobs.
  if (text->substr(0, text->find('\n')).find("model_name") != std::string::npos)
    return import_elasticflow(file, window);
  const auto row = [&](csv_reader& csv, row_sink& sink) {
    trace_row r;
    r.job_id = csv.field("job_id");
    r.submit_s = csv.number("submission_time", trace_seconds);
    if (never_ran_in(csv, "duration", window) || never_ran_in(csv, "num_gpu", window))
      return sink.leave_out(never_ran);
    r.duration_s = csv.number("duration", {0, 1e9, true});
    r.gpus = static_cast<std::uint32_t>(csv.whole("num_gpu", {1, 1e6}));
    sink.add(csv, "job_id", std::move(r));
  };
  return import_csv(file, window, false, {"job_id", "submission_time", "duration", "num_gpu"}, {},
                    row);
}

using importer = expected<imported_trace> (*)(const fs::path&, const trace_window&);

const auto& importers() {
  static const std::array<std::pair<std::string, importer>, 9> all{
      {{"philly", import_philly},
       {"philly-json", import_philly_json},
       {"itp", import_itp},
       {"elasticflow", import_elasticflow},
       {"helios", import_helios},
       {"pai", import_pai},
       {"openb", import_openb},
       {"sia", import_sia},
       {"gavel", import_gavel}}};
  return all;
}

}  // namespace

std::vector<std::string> job_trace_formats() {
  std::vector<std::string> names;
  for (const auto& [name, import] : importers()) names.push_back(name);
  return names;
}

expected<imported_trace> import_jobs(std::string_view format, const fs::path& file,
                                     const trace_window& window) {
  for (const auto& [name, import] : importers())
    if (name == format) return import(file, window);
  return refuse(reason::kind::invalid, "unknown format '{}'{}", shown(format),
                hint(format, job_trace_formats()));
}

// Azure's LLM inference trace: one row a request, with the lengths of prompt and answer and without
// their texts.
expected<imported_requests> import_azure_llm(const fs::path& file, const trace_window& window) {
  const auto text = read_text(file, trace_limit_bytes);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  csv_reader csv{found, *text};
  csv.expect({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, {});
  imported_requests all;
  row_sink sink{found, window};
  for_each_row(csv, found, sink, [&] {
    const inference_row r{timestamp(csv, "TIMESTAMP"),
                          static_cast<std::uint32_t>(csv.whole("ContextTokens", {0, 1e8})),
                          static_cast<std::uint32_t>(csv.whole("GeneratedTokens", {0, 1e8}))};
    if (found.good()) all.rows.push_back(r);
  });
  all.left_out = sink.left_out();
  cut(found, all.rows, &inference_row::arrival_s, window, true);
  return found.result(std::move(all));
}

}  // namespace troupe::formats
