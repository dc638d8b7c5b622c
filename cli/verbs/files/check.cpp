#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/options/assumed.hpp"
#include "cli/output/human.hpp"
#include "cli/programs/described_program.hpp"
#include "cli/verbs/files/check_examples.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "formats/load/lookup_table.hpp"
#include "formats/parse/reader.hpp"
#include "formats/parse/value.hpp"
#include "formats/traces/trace.hpp"
#include "messages/admission/job_keys.hpp"
#include "messages/domain/stated_length.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/places.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// A kind of file, and the keys that identify it.
struct file_kind {
  const char* name;
  const char* folder;
  std::vector<std::string> keys;
};

// Foreign keys (Hugging Face's names) are listed too: a file with them is a model with mistakes in
// it, not an unknown file.
std::vector<std::string> model_key_names() {
  std::vector<std::string> names{"huggingface",       "architectures", "model_type", "hidden_size",
                                 "num_hidden_layers", "n_embd",        "n_layer",    "vocab_size"};
  for (const auto& k : admission::model_keys())
    if (k.name != "name") names.emplace_back(k.name);  // files of other kinds have it, too
  return names;
}

const std::vector<file_kind>& kinds() {
  static const std::vector<file_kind> all = {
      {"cluster", "clusters", {"datacenters", "wan", "settings", "controller", "fronts"}},
      {"job", "jobs", admission::job_key_names()},
      {"model", "models", model_key_names()},
      {"faults",
       "faults",
       {"loss", "duplication", "reordering", "reorder_delay_s", "partitions", "crashes",
        "slow_nodes", "slow_links", "node_crashes_per_hour", "gateway_crashes_per_hour",
        "controller_crashes_per_hour", "mean_down_s", "torn_append", "from_s", "until_s"}},
      {"profile", "", {"profile", "device", "kind", "date", "clocks", "copies", "models"}},
      {"lookup-table", "", {"rows"}},
      {"catalogue",
       "",
       {"memory_gb", "fp16_tflops", "fp32_tflops", "memory_gbytes_s", "price_per_hour"}},
  };
  return all;
}

std::size_t common(const std::vector<std::string>& keys, const std::vector<std::string>& known) {
  return static_cast<std::size_t>(std::count_if(keys.begin(), keys.end(), [&](const auto& k) {
    return std::find(known.begin(), known.end(), k) != known.end();
  }));
}

/// Similarity of the tree to a kind: two points per common key, one for its directory.
std::size_t likeness(const file_kind& kind, const formats::value& v, const fs::path& file) {
  const auto& keys =
      std::string{"catalogue"} == kind.name && !v.items.empty() ? v.items[0].keys : v.keys;
  // The folder decides only between equal counts, for files that have few keys.
  return 2 * common(keys, kind.keys) + (file.parent_path().filename() == kind.folder ? 1 : 0);
}

/// The kind of a file, or why it is unknown.
expected<std::string> kind_of(const fs::path& file) {
  // Traces have no keys, only columns.
  if (file.extension() == ".csv") return "trace";
  if (file.extension() == ".jsonl") return "examples";
  // Given in a job file's place: the job's reader says what to type.
  if (file.extension() == ".py" || file.extension() == ".sh") return "job";
  const auto v = formats::load_value(file);
  if (!v) return refuse(v.error());
  const file_kind* best = nullptr;
  std::size_t max = 0;
  for (const auto& kind : kinds())
    if (const auto n = likeness(kind, *v, file); n > max) {
      max = n;
      best = &kind;
    }
  if (best) return best->name;
  return refuse(formats::complaint(
      file.string(), v->line, "",
      fmt::format("{} is of unknown kind; expected the keys of a cluster (datacenters), a job "
                  "(model, global_batch), a model (hidden, layers), faults (loss, crashes) or a "
                  "catalogue; use --as KIND",
                  formats::describe(*v))));
}

template <class T, class Describe>
expected<std::string> summary(const expected<T>& loaded, Describe describe) {
  if (!loaded) return refuse(loaded.error());
  return describe(*loaded);
}

std::string print_cluster(const cluster& c) {
  std::size_t gpus = 0;
  for (const auto& n : c.nodes) gpus += n.gpus;
  return fmt::format("{}: {}, {}, {} of {}{}{}", c.name,
                     counted(c.datacenters.size(), "datacenter"), counted(c.nodes.size(), "node"),
                     counted(gpus, "GPU"), counted(c.gpus.size(), "type"),
                     c.fronts.empty() ? "" : ", " + counted(c.fronts.size(), "front"),
                     prices_traffic(c) ? ", priced traffic" : "");
}

std::string print_model(const model& m) {
  if (!m.operators.empty())
    return fmt::format("{}: {}, {} operators", m.name, m.family, m.operators.size());
  return fmt::format("{}: {}, {} layers of {}, {} heads, sequence {}", m.name, m.family, m.layers,
                     m.hidden, m.heads, m.sequence);
}

std::string work_of(const job_spec& j) {
  const auto facts = facts_of(j);
  if (facts.has_processes) return "runs " + j.program.command.front();
  if (!facts.has_model) return "a study of its pipeline, in slots";
  if (!facts.has_stages) return "simulated work";
  if (j.train->program && j.train->program->file.empty()) return "a training of a model folder";
  return j.train->program ? "a training of the layers in " + j.train->program->file
                          : "a training by the built-in trainer";
}

std::string print_job(const job_spec& j) {
  if (facts_of(j).serves)
    return fmt::format("{}: serves '{}', context {}, cache {:g} GB, until it is cancelled", j.name,
                       j.serve->model.name,
                       j.serve->context > 0 ? j.serve->context : j.model.sequence, j.serve->kv_gb);
  std::string text = j.name + ": ";
  if (!j.assumed.model) text += j.model.name + ", ";
  if (const auto batch = stated_batch(j); batch && !j.assumed.model)
    text += fmt::format("batch {}, ", *batch);
  if (facts_of(j).has_known_length) text += counted(j.iterations, "iteration") + ", ";
  text += work_of(j);
  if (facts_of(j).exact_gpus) text += " on " + counted(j.request.gpus, "GPU");
  return text;
}

std::string print_profile(const device_profile& p) {
  std::size_t points = 0;
  for (const auto& m : p.models) points += m.points.size();
  for (const auto& m : p.programs) points += m.points.size();
  return fmt::format("of {} ({}), {}: {}, {}", p.device, p.kind, p.date,
                     counted(p.models.size() + p.programs.size(), "model"),
                     counted(points, "size"));
}

std::string print_faults(const fault_plan& f) {
  return fmt::format(
      "{}: {}, {}, {} and {} at fixed times", f.name, counted(f.partitions.size(), "partition"),
      counted(f.crashes.size(), "failure"), counted(f.slow_nodes.size(), "slow node"),
      counted(f.slow_links.size(), "slow link"));
}

/// A trace of jobs or of inference requests; errors are those for jobs.
expected<std::string> load_trace(const fs::path& file) {
  const auto jobs = formats::load_trace(file);
  if (jobs) return fmt::format("of {}", counted(jobs->size(), "job"));
  // Both kinds are CSV; their headers differ.
  if (const auto requests = formats::load_inference_trace(file))
    return fmt::format("of {}", counted(requests->size(), "inference request"));
  return refuse(jobs.error());
}

/// Reads files as other verbs would, and reports the first mistake of each, with its line. Needs no
/// cluster.
class check_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option(
           "FILE", files_,
           "Cluster, job, model, fault, GPU catalogue, profile, lookup table or trace files, or "
           "examples to learn from (JSONL); - is standard input")
        ->required();
    std::vector<std::string> names;
    for (const auto& k : kinds()) names.emplace_back(k.name);
    names.emplace_back("trace");
    names.emplace_back("examples");
    app.add_option("--as", as_, "Kind of the files, if their keys do not show it")
        ->check(CLI::IsMember(names));
    app.add_option("--cluster", cluster_,
                   "Cluster whose hosts a fault file may name, and that a program is to run on");
    app.add_option("--model", examples_.model, "Model folder that is to learn from examples");
    app.add_option("--job", examples_.job,
                   "Job file whose `train:` says how examples become rows (sequence, packing, "
                   "train_on, too_long, date)");
    app.add_option("--rows", examples_.rows, "Write the rows of examples to a safetensors file");
  }

  int run(output& out) override {
    json files = json::array();
    // All files are checked, also behind one that is wrong: people correct them in one go.
    int status = exit_done;
    for (const auto& file : files_) {
      const auto kind = as_.empty() ? kind_of(file) : expected<std::string>{as_};
      warnings_.clear();
      figures_ = json::object();
      // A file of another kind with this name breaks the cluster files beside it.
      if (kind && *kind != "catalogue" && fs::path{file}.filename() == "gpus.yaml")
        warnings_.emplace_back(
            "a file with this name is used as the GPU catalogue of all cluster files in and below "
            "its folder (docs/files.md); rename it");
      const auto what = kind ? load(*kind, file) : expected<std::string>{refuse(kind.error())};
      files.push_back({{"file", file},
                       {"kind", kind ? json(*kind) : json()},
                       {"valid", what.has_value()},
                       {"summary", what ? json(*what) : json()},
                       {"error", what ? json() : json(what.error().text)},
                       {"warnings", warnings_}});
      files.back().update(figures_);
      for (const auto& w : warnings_) out.note("troupe: {}: warning: {}", file, w);
      if (what) {
        out.line("{}: {} {}", file, *kind, *what);
      } else {
        out.note("troupe: {}", what.error().text);
        status = exit_bad;
      }
    }
    json catalogues = json::array();
    for (const auto& [file, why] : bad_catalogues_) {
      out.note("troupe: {}", why);
      catalogues.push_back({{"file", file}, {"error", why}});
      status = exit_bad;
    }
    out.document({{"files", files}, {"bad_catalogues", catalogues}});
    return status;
  }

 private:
  expected<std::string> load(const std::string& kind, const std::string& file) {
    if (kind == "cluster") return load_cluster(file);
    if (kind == "job") {
      const auto job = load_job(file);
      if (job) warn_of(*job);
      return summary(job, print_job);
    }
    if (kind == "model") {
      const auto m = formats::load_model(file);
      if (m) warn_of(*m);
      return summary(m, print_model);
    }
    if (kind == "profile") return summary(formats::load_profile(file), print_profile);
    if (kind == "faults") return summary(load_faults(file), print_faults);
    if (kind == "lookup-table") return load_lookup_table(file);
    if (kind == "trace") return load_trace(file);
    if (kind == "examples") return load_examples(file);
    return summary(formats::load_catalogue(file), [](const std::vector<gpu_type>& types) {
      return fmt::format("of {}", counted(types.size(), "GPU type"));
    });
  }

  /// The catalog of a file's folder; if it is invalid, that is reported once, not for each file.
  const std::vector<gpu_type>* catalogue_of(const std::string& file) {
    const auto path = formats::catalogue_for(file).string();
    if (bad_catalogues_.contains(path)) return nullptr;
    if (const auto known = catalogues_.find(path); known != catalogues_.end())
      return &known->second;
    auto loaded = formats::load_catalogue(path);
    if (loaded) return &catalogues_.emplace(path, std::move(*loaded)).first->second;
    // Its error would otherwise be repeated for each of the files beside it.
    bad_catalogues_.emplace(path, loaded.error().text);
    return nullptr;
  }

  expected<std::string> load_cluster(const std::string& file) {
    const auto* catalogue = catalogue_of(file);
    if (!catalogue)
      return refuse(reason::kind::invalid,
                    fmt::format("{}: not checked, because {} is not a valid GPU catalogue", file,
                                formats::catalogue_for(file).string()));
    return summary(formats::load_cluster(file, *catalogue), print_cluster);
  }

  expected<std::string> load_examples(const std::string& file) {
    if (files_.size() > 1 && !examples_.rows.empty())
      return refuse(reason::kind::invalid, "--rows: found several files, expected one of examples");
    auto checked = check_examples(file, examples_);
    if (!checked) return refuse(checked.error());
    warnings_ = std::move(checked->warnings);
    figures_ = std::move(checked->figures);
    return std::move(checked->summary);
  }

  /// Without a valid catalogue any GPU type is accepted.
  expected<std::string> load_lookup_table(const std::string& file) {
    const auto* catalogue = catalogue_of(file);
    return summary(
        formats::load_lookup_table(file, catalogue ? *catalogue : std::vector<gpu_type>{}),
        [](const auto& rows) { return fmt::format("of {}", counted(rows.size(), "row")); });
  }

  /// A job need not name a GPU: it is checked without a catalog, too.
  expected<job_spec> load_job(const std::string& file) {
    auto job = cli::load_job(file, {}, &warnings_);
    if (!job) return job;
    if (const auto work = facts_of(*job); work.has_model && work.has_end) warn_of(job->model);
    // Read twice: without a catalogue first, so that a job's own mistakes are found beside a broken
    // one.
    if (job->request.type.empty()) return job;
    const auto* catalogue = catalogue_of(file);
    return catalogue ? cli::load_job(file, *catalogue) : job;
  }

  void warn_of(const job_spec& j) {
    if (auto assumed = assumption_text(j, "model, gpus or memory_gb"); !assumed.empty())
      warnings_.push_back(std::move(assumed));
    for (auto& doubt : doubts_of(j)) warnings_.push_back(std::move(doubt));
    if (!facts_of(j).exact_gpus || cluster_.empty()) return;
    const auto c = formats::load_cluster(cluster_);
    if (!c) return warnings_.push_back(c.error().text);
    const auto plans = planners::exact_plans(*c, j);
    auto notice = plans ? planners::spread_notice(*c, j, *plans) : plans.error().text;
    if (!notice.empty()) warnings_.push_back(std::move(notice));
  }

  void warn_of(const model& m) {
    // Model cards state the longest context; trainings use a fraction, and activations grow with
    // it.
    constexpr std::uint32_t long_sequence = 32'768;
    if (m.sequence > long_sequence)
      warnings_.push_back(
          fmt::format("sequence {} is probably the model's maximum, not your training's; memory "
                      "and time depend on it, so set the training's own (sequence: 4096)",
                      grouped(m.sequence)));
  }

  expected<fault_plan> load_faults(const std::string& file) const {
    auto plan = formats::load_faults(file);
    if (!plan || cluster_.empty()) return plan;
    const auto c = formats::load_cluster(cluster_);
    if (!c) return refuse(c.error());
    if (const auto known = formats::check_faults(*plan, *c, file); !known)
      return refuse(known.error());
    return plan;
  }

  std::map<std::string, std::vector<gpu_type>> catalogues_;
  std::map<std::string, std::string> bad_catalogues_;  // with their errors
  std::vector<std::string> warnings_;                  // of the present file
  std::vector<std::string> files_;
  json figures_;  // of examples
  std::string as_, cluster_;
  example_files examples_;
};

}  // namespace

std::unique_ptr<verb> make_check() {
  return std::make_unique<check_verb>();
}

}  // namespace troupe::cli
