#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "cli/output/output_file.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/parse/reader.hpp"
#include "formats/traces/generate.hpp"
#include "formats/traces/trace.hpp"
#include "messages/base/refuse.hpp"

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

constexpr std::size_t max_made_rows = 1'000'000;

/// The trace's last submission, and its work; -1: its rows have no durations.
void sum_up(std::span<const formats::trace_row> rows, imported& out) {
  out.rows = rows.size();
  out.gpu_hours = 0;
  for (const auto& r : rows) {
    out.last_s = std::max(out.last_s, r.submit_s);
    out.gpu_hours += r.duration_s * r.gpus / 3600;
  }
  // Formats without durations: 0 GPU-hours would be a wrong figure, not an unknown one.
  if (std::ranges::all_of(rows, [](const auto& r) { return r.duration_s == 0; }))
    out.gpu_hours = -1;
}

/// Converts published traces to the CSV that `troupe simulate` replays, and makes those that are
/// not published. Rows that had to be left out or changed are counted by reason, never dropped
/// silently.
class trace_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.require_subcommand(1);
    import_options(app);
    make_options(app);
  }

  int run(output& out) override {
    if (!out_.empty())
      if (auto ok = can_write(out_); !ok) return out.bad(ok.error());
    if (made_->parsed()) return make(out);
    const auto trace = import();
    if (!trace) return out.bad(trace.error());
    return show(out, file_, *trace, {{"format", format_}, {"file", file_}});
  }

 private:
  void import_options(CLI::App& app) {
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
    import->add_flag(
        "--skip", window_.skip,
        "Leave out rows that cannot be used, and those that never ran (0 s, or no GPUs); "
        "philly-json, helios, pai and openb always leave out the latter");
  }

  void make_options(CLI::App& app) {
    made_ = app.add_subcommand("make", "Make a trace that is not published, from its description");
    made_->add_option("WORKLOAD", workload_, "titan: fine-tuning jobs of ViT-Large/16")
        ->required()
        ->check(CLI::IsMember({"titan"}));
    const auto number = [this](const char* name, std::string& to, const char* help) {
      made_->add_option(name, to, help)->capture_default_str();
    };
    number("--jobs", jobs_, "Jobs, at density 1");
    number("--hours", hours_, "Hours over which they arrive");
    number("--density", density_, "Times as many jobs");
    made_->add_option("--seed", seed_, "Random seed")->capture_default_str();
    made_->add_option("--out", out_, "Output file (default: standard output)");
  }

  /// Writes it, and shows the document, which begins with `d`.
  int show(const output& out, const std::string& name, const imported& trace, json d) const {
    if (!out_.empty())
      if (const auto saved = formats::save_text(out_, trace.csv); !saved)
        return out.failure(saved.error());
    d.update(json{{"rows", trace.rows},
                  {"last_s", trace.last_s},
                  {"gpu_hours", trace.gpu_hours < 0 ? json() : json(trace.gpu_hours)},
                  {"left_out", trace.left_out},
                  {"changed", trace.changed},
                  {"out", out_.empty() ? json() : json(out_)}});
    // With --json and no file, the document is the only output.
    if (out_.empty()) d["csv"] = trace.csv;
    out.document(d);
    if (out_.empty()) out.text(trace.csv);
    const auto work =
        trace.gpu_hours < 0 ? "" : fmt::format(", {:.0f} GPU-hours of work", trace.gpu_hours);
    // On standard error: the CSV may be on standard output.
    out.note("{}: {} rows over {:.1f} hours{}", name, trace.rows, trace.last_s / 3600, work);
    if (!trace.left_out.empty()) out.note("left out: {}", counts_text(trace.left_out));
    if (!trace.changed.empty()) out.note("changed: {}", counts_text(trace.changed));
    return exit_done;
  }

  int make(const output& out) const {
    const auto w = made_workload();
    if (!w) return out.bad(w.error());
    const auto rows = formats::make_titan_trace(*w);
    const auto command =
        fmt::format("troupe trace make titan --jobs {} --hours {} --density {} --seed {}", w->jobs,
                    w->hours, w->density, w->seed);
    imported trace;
    trace.csv = formats::to_csv(rows, command);
    sum_up(rows, trace);
    return show(out, workload_, trace,
                {{"workload", workload_},
                 {"jobs", w->jobs},
                 {"hours", w->hours},
                 {"density", w->density},
                 {"seed", w->seed}});
  }

  /// A number above 0, and at most `max`.
  static expected<double> positive(const char* option, const std::string& text, double max) {
    const auto x = formats::parse_number(text);
    if (x && *x > 0 && *x <= max) return *x;
    return refuse(reason::kind::invalid, "{}: found '{}', expected a number above 0, at most {:g}",
                  option, shown(text), max);
  }

  expected<formats::titan_workload> made_workload() const {
    const auto jobs = positive("--jobs", jobs_, max_made_rows);
    if (!jobs) return refuse(jobs.error());
    const auto hours = positive("--hours", hours_, 1e5);
    if (!hours) return refuse(hours.error());
    const auto density = positive("--density", density_, 1e6);
    if (!density) return refuse(density.error());
    const auto rows = std::round(*jobs * *density);
    if (rows < 1 || rows > max_made_rows)
      return refuse(reason::kind::invalid,
                    "--jobs times --density: found {:g} jobs, expected 1 to {}", rows,
                    max_made_rows);
    return formats::titan_workload{*jobs, *hours, *density, seed_};
  }

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
      auto all = formats::import_azure_llm(file_, window_);
      if (!all) return refuse(all.error());
      imported i{formats::to_csv(all->rows, comment()),
                 all->rows.size(),
                 0,
                 -1,
                 std::move(all->left_out),
                 {}};
      for (const auto& r : all->rows) i.last_s = std::max(i.last_s, r.arrival_s);
      return i;
    }
    auto trace = formats::import_jobs(format_, file_, window_);
    if (!trace) return refuse(trace.error());
    imported i;
    i.csv = formats::to_csv(trace->rows, comment());
    i.left_out = std::move(trace->left_out);
    i.changed = std::move(trace->changed);
    sum_up(trace->rows, i);
    return i;
  }

  CLI::App* made_ = nullptr;  // the sub-command make
  std::string format_, file_, out_, workload_;
  std::string jobs_ = "320", hours_ = "8", density_ = "1";
  std::uint64_t seed_ = 1;
  formats::trace_window window_;
};

}  // namespace

std::unique_ptr<verb> make_trace() {
  return std::make_unique<trace_verb>();
}

}  // namespace troupe::cli
