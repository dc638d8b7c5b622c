#include <algorithm>
#include <map>

#include "cli/verbs/verb.hpp"
#include "formats/traces/trace.hpp"

namespace troupe::cli {

namespace {

/// A trace in Troupe's form.
struct imported {
  std::string csv;
  std::size_t rows = 0;
  double last_s = 0;                                     // start of its last row
  double gpu_hours = -1;                                 // of job traces
  std::map<std::string, std::size_t> left_out, changed;  // rows, by why
};

/// "3 never ran, 1 without GPUs"
std::string counts_text(const std::map<std::string, std::size_t>& counts) {
  std::string text;
  for (const auto& [why, rows] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", rows, why);
  return text;
}

/// Converts published traces to the CSV that `troupe simulate` replays. Rows that had to be left
/// out or changed are counted by reason, never dropped silently.
class trace_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.require_subcommand(1);
    auto* import =
        app.add_subcommand("import", "Convert a published trace, or part of it, to Troupe's CSV");
    auto formats = formats::job_trace_formats();
    formats.emplace_back("azure-llm");
    import->add_option("FORMAT", format_, fmt::format("{}", fmt::join(formats, ", ")))
        ->required()
        ->check(CLI::IsMember(formats));
    import->add_option("FILE", file_, "The trace as published")->required();
    import->add_option("--out", out_, "Output file (default: standard output)");
    import->add_option(
        "--from", window_.from,
        "Start: a date (2017-12-21 or \"2017-12-21 08:00:00\"), or days after the first row");
    import->add_option("--hours", window_.hours, "Length in hours; 0: to the end")
        ->check(CLI::NonNegativeNumber);
    import->add_option("--group", window_.group,
                       "One virtual cluster (philly, philly-json, helios)");
    import->add_flag("--skip", window_.skip,
                     "Leave out rows that never ran (0 s, or no GPUs) where the format has them "
                     "refused; philly-json, helios, pai and openb always leave them out");
  }

  int run(output& out) override {
    const auto trace = import();
    if (!trace) return out.bad(trace.error());
    if (!out_.empty())
      if (const auto saved = formats::save_text(out_, trace->csv); !saved)
        return out.bad(saved.error());

    json d = {{"format", format_},
              {"file", file_},
              {"rows", trace->rows},
              {"last_s", trace->last_s},
              {"gpu_hours", trace->gpu_hours < 0 ? json() : json(trace->gpu_hours)},
              {"left_out", trace->left_out},
              {"changed", trace->changed},
              {"out", out_.empty() ? json() : json(out_)}};
    // With --json and no file, the document is the only output.
    if (out_.empty()) d["csv"] = trace->csv;
    out.document(d);
    if (out_.empty()) out.text(trace->csv);
    const auto work =
        trace->gpu_hours < 0 ? "" : fmt::format(", {:.0f} GPU-hours of work", trace->gpu_hours);
    // On standard error: the CSV may be on standard output.
    out.note("{}: {} rows over {:.1f} hours{}", file_, trace->rows, trace->last_s / 3600, work);
    if (!trace->left_out.empty()) out.note("left out: {}", counts_text(trace->left_out));
    if (!trace->changed.empty()) out.note("changed: {}", counts_text(trace->changed));
    return exit_done;
  }

 private:
  /// The CSV's header comment.
  // The command that made the file, so that it can be made again.
  std::string comment() const {
    const auto name = file_.substr(file_.rfind('/') + 1);
    std::string text = fmt::format("troupe trace import {} {}", format_, name);
    const bool spaced = window_.from.find(' ') != std::string::npos;
    if (!window_.from.empty())
      text += fmt::format(" --from {0}{1}{0}", spaced ? "\"" : "", window_.from);
    if (window_.hours > 0) text += fmt::format(" --hours {:g}", window_.hours);
    if (!window_.group.empty()) text += fmt::format(" --group {}", window_.group);
    if (window_.skip) text += " --skip";
    return text;
  }

  expected<imported> import() const {
    if (format_ == "azure-llm") {
      const auto rows = formats::import_azure_llm(file_, window_);
      if (!rows) return refuse(rows.error());
      imported i{formats::to_csv(*rows, comment()), rows->size(), 0, -1, {}, {}};
      for (const auto& r : *rows) i.last_s = std::max(i.last_s, r.arrival_s);
      return i;
    }
    auto trace = formats::import_jobs(format_, file_, window_);
    if (!trace) return refuse(trace.error());
    imported i{formats::to_csv(trace->rows, comment()),
               trace->rows.size(),
               0,
               0,
               std::move(trace->left_out),
               std::move(trace->changed)};
    for (const auto& r : trace->rows) {
      i.last_s = std::max(i.last_s, r.submit_s);
      i.gpu_hours += r.duration_s * r.gpus / 3600;
    }
    // Formats without durations: 0 GPU-hours would be a wrong figure, not an unknown one.
    if (std::ranges::all_of(trace->rows, [](const auto& r) { return r.duration_s == 0; }))
      i.gpu_hours = -1;
    return i;
  }

  std::string format_, file_, out_;
  formats::trace_window window_;
};

}  // namespace

std::unique_ptr<verb> make_trace() {
  return std::make_unique<trace_verb>();
}

}  // namespace troupe::cli
