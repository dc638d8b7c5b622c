#include <algorithm>
#include <filesystem>

#include "cli/options/link_profile.hpp"
#include "cli/output/output_file.hpp"
#include "cli/output/progress.hpp"
#include "cli/output/table.hpp"
#include "cli/programs/profiled_program.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/gpu_names.hpp"
#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "gpu/profiling/profile.hpp"
#include "messages/base/absolute_path.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "runtime/process/link_probe.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

// The same keys as the YAML file's, whose meaning docs/files.md has.
json document_of(const part_times& t) {
  return {{"forward_s", t.forward_s},  {"recompute_s", t.recompute_s}, {"backward_s", t.backward_s},
          {"update_s", t.update_s},    {"gradients_s", t.gradients_s}, {"spread", t.spread},
          {"peak_bytes", t.peak_bytes}};
}

json document_of(const model_profile& m) {
  json points = json::array();
  for (const auto& p : m.points)
    points.push_back({{"sequence", p.sequence},
                      {"rows", p.rows},
                      {"tensor_parallel", p.tensor_parallel},
                      {"attention", document_of(p.attention)},
                      {"mlp", document_of(p.mlp)},
                      {"plain", document_of(p.plain)},
                      {"embedding", document_of(p.embedding)},
                      {"head", document_of(p.head)},
                      {"ends", document_of(p.ends)}});
  return {{"name", m.name},
          {"hidden", m.hidden},
          {"heads", m.heads},
          {"intermediate", m.intermediate},
          {"vocabulary", m.vocabulary},
          {"tied_head", m.tied_head},
          {"points", points}};
}

/// Unknown values are null.
json known(double x) {
  return x > 0 ? json(x) : json();
}

json document_of(const layers_profile& m) {
  json points = json::array();
  for (const auto& p : m.points) {
    json layers = json::array();
    for (const auto& layer : p.layers) {
      auto one = document_of(layer.times);
      one["name"] = layer.name;
      layers.push_back(std::move(one));
    }
    points.push_back({{"rows", p.rows},
                      {"layers", std::move(layers)},
                      {"loss", document_of(p.loss)},
                      {"tied", document_of(p.tied)},
                      {"plain", document_of(p.plain)}});
  }
  return {{"name", m.name},
          {"key", m.key},
          {"threads", m.threads},
          {"tensors_gbytes_s", known(m.tensors_gbytes_s)},
          {"points", std::move(points)}};
}

json document_of(const std::vector<all_reduce_rate>& all) {
  json out = json::array();
  for (const auto& r : all)
    out.push_back({{"devices", r.devices}, {"gbytes_s", r.gbytes_s}, {"small_us", r.small_us}});
  return out;
}

/// The shipped catalogue's type of the measured GPU; empty: unknown, or no GPU.
// So that the file can be used at once: a cluster file needs the catalogue's name of the type.
std::string type_of(const device_profile& p) {
  if (facts_of_device(p.kind).is_host_core) return {};
  const auto all = formats::load_catalogue(formats::configs_directory() / "gpus.yaml");
  if (!all) return {};
  const auto* type = formats::type_of_device(*all, p.device, static_cast<double>(p.total_bytes));
  return type ? type->name : std::string{};
}

json document_of(const device_profile& p, const std::string& file) {
  json models = json::array();
  for (const auto& m : p.models) models.push_back(document_of(m));
  for (const auto& m : p.programs) models.push_back(document_of(m));
  const auto& all = p.copies.all_reduces;
  const auto type = type_of(p);
  return {{"file", file},
          {"device", p.device},
          {"gpu_type", type.empty() ? json() : json(type)},
          {"kind", p.kind},
          {"driver", p.driver},
          {"runtime", p.runtime},
          {"libraries", p.libraries},
          {"date", p.date},
          {"busy", p.busy},
          {"clocks",
           {{"core_mhz", known(p.clocks.core_mhz)},
            {"core_max_mhz", known(p.clocks.core_max_mhz)},
            {"memory_mhz", known(p.clocks.memory_mhz)},
            {"memory_max_mhz", known(p.clocks.memory_max_mhz)}}},
          {"memory", {{"total_bytes", p.total_bytes}, {"free_bytes", p.free_bytes}}},
          {"copies",
           {{"to_device_gbytes_s", known(p.copies.to_device_gbytes_s)},
            {"from_device_gbytes_s", known(p.copies.from_device_gbytes_s)},
            {"on_device_gbytes_s", known(p.copies.on_device_gbytes_s)},
            {"all_reduce_gbytes_s", all.empty() ? json() : json(all.back().gbytes_s)},
            {"all_reduces", document_of(all)},
            {"all_reduce", p.copies.all_reduce}}},
          {"models", models}};
}

// A row for each part of a layer: planners compose stages of any size from them.
std::string table_of(const model_profile& m) {
  table t{{"tokens", "rows", "devices", "part", "forward ms", "recompute ms", "backward ms",
           "update ms", "gradients ms", "spread"}};
  for (const auto& p : m.points) {
    const auto row = [&](const char* name, const part_times& x) {
      const auto ms = [](double s) { return fmt::format("{:.3f}", 1e3 * s); };
      t.row({fmt::to_string(p.sequence), fmt::to_string(p.rows), fmt::to_string(p.tensor_parallel),
             name, ms(x.forward_s), ms(x.recompute_s), ms(x.backward_s), ms(x.update_s),
             ms(x.gradients_s), fmt::format("{:.1f} %", 100 * x.spread)});
    };
    row("attention", p.attention);
    row("mlp", p.mlp);
    row("embedding", p.embedding);
    row("head", p.head);
    row("ends", p.ends);
    row("plain", p.plain);
  }
  return t.text();
}

std::string table_of(const layers_profile& m) {
  table t{{"rows", "layer", "forward ms", "recompute ms", "backward ms", "update ms",
           "gradients ms", "spread"}};
  for (const auto& p : m.points) {
    const auto row = [&](const std::string& name, const part_times& x) {
      const auto ms = [](double s) { return fmt::format("{:.3f}", 1e3 * s); };
      t.row({fmt::to_string(p.rows), name, ms(x.forward_s), ms(x.recompute_s), ms(x.backward_s),
             ms(x.update_s), ms(x.gradients_s), fmt::format("{:.1f} %", 100 * x.spread)});
    };
    for (const auto& layer : p.layers) row(layer.name, layer.times);
    row("loss", p.loss);
    row("tied", p.tied);
    row("plain", p.plain);
  }
  return t.text();
}

/// Measures the parts of models on a device of this machine, for planners to use in place of the
/// cost model.
class profile_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("--device", wish_.device, "Device to measure")
        ->check(CLI::IsMember(device_names(&device_facts::computes)))
        ->capture_default_str();
    app.add_option("--index", wish_.index, "GPU index")->check(CLI::Range(0, 1024));
    auto* model = app.add_option(
        "--model", models_,
        "Model file (its number of layers does not matter); may be repeated (default: gpt2-124m)");
    app.add_option("--program", program_.program.file,
                   "Python file whose layers are measured, instead of models")
        ->excludes(model);
    app.add_option("--arguments", program_.program.arguments,
                   "Arguments of the program's functions: NAME=VALUE,.. or a JSON object");
    app.add_option("--python", program_.program.python,
                   "Interpreter of the program (default: $TROUPE_PYTHON, or python3)");
    app.add_option("--threads", program_.program.threads,
                   "Threads of the program's worker on a CPU")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    app.add_option("--rows", wish_.rows, "Sequences per micro-batch")
        ->delimiter(',')
        ->check(CLI::Range(1, 1'000'000))
        ->default_str("1,2,4,8");
    app.add_option("--sequence", wish_.sequences, "Tokens per sequence (default: each model's own)")
        ->delimiter(',')
        ->check(CLI::Range(1, 100'000'000));
    app.add_option("--tensor-parallel", wish_.tensor_parallel,
                   "Measure also stages that this many devices share")
        ->delimiter(',')
        ->check(CLI::Range(2, 1024));
    app.add_option("--busy", wish_.busy, "Devices computing at once, the measured one included")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    app.add_option("--emulate-speed", wish_.emulate_speed,
                   "CPU only: pause after each operation, like a node with this emulate_speed")
        ->check(CLI::Range(0.01, 1.0))
        ->capture_default_str();
    app.add_option("--rounds", wish_.rounds, "Measurement rounds")
        ->check(CLI::Range(3, 1000))
        ->capture_default_str();
    app.add_option("--out", out_, "Output file")->capture_default_str();
    auto* links = app.add_option("--links", link_to_,
                                 "Measure the link to the machine that listens at HOST:PORT, and "
                                 "print it for a cluster file; nothing else is measured")
                      ->expected(0, 1);
    app.add_option("--listen", listen_, "With --links: wait at HOST:PORT for the other machine")
        ->needs(links);
    app.add_option("--flows", flows_, "With --links: connections at once, as the GPUs of a node")
        ->check(CLI::Range(1U, runtime::max_link_flows))
        ->capture_default_str()
        ->needs(links);
    links_ = links;
  }

  int run(output& out) override {
    if (links_->count() > 0) {
      if (link_to_.empty() == listen_.empty())
        return out.bad("--links: expected HOST:PORT, or --listen HOST:PORT, one of the two");
      return listen_.empty() ? measure_links(out, link_to_, flows_) : answer_links(out, listen_);
    }
    // A GPU's kernels cannot be slowed down by pauses between them.
    if (!facts_of_device(wish_.device).is_host_core && wish_.emulate_speed < 1)
      return out.bad({reason::kind::invalid,
                      "--emulate-speed applies to CPU devices only: use it with --device cpu"});
    const bool of_program = !program_.program.file.empty();
    if (of_program &&
        (!wish_.sequences.empty() || !wish_.tensor_parallel.empty() || wish_.emulate_speed < 1))
      return out.bad({reason::kind::invalid,
                      "found --program with --sequence, --tensor-parallel or --emulate-speed, "
                      "which apply to models only"});
    if (models_.empty() && !of_program)
      models_.push_back((formats::configs_directory() / "models" / "gpt2-124m.yaml").string());
    // Times between measured sizes are interpolated, so powers of two suffice.
    if (wish_.rows.empty()) wish_.rows = {1, 2, 4, 8};
    for (const auto& file : models_) {
      auto m = formats::load_model(file);
      if (!m) return out.bad(m.error());
      wish_.models.push_back(std::move(*m));
    }
    std::error_code error;
    if (const fs::path file{out_}; file.has_parent_path())
      // can_write() reports the reason if this fails.
      fs::create_directories(file.parent_path(), error);
    if (auto ok = can_write(out_); !ok) return out.bad(ok.error());
    work_progress progress;
    const auto say = [&](const std::string& text, double share) {
      progress.show(fmt::format("{} ({:.0f} %)", text, 100 * share), share);
    };
    wish_.progress = say;
    wish_.not_measured = [&](const std::string& text) {
      progress.clear();
      out.note("troupe: {}", text);
    };
    auto profile = gpu::measure_device(wish_);
    progress.clear();
    if (!profile) return out.failure(profile.error());
    if (of_program) {
      auto layers = measure_program(say);
      progress.clear();
      if (!layers) return out.bad(layers.error());
      profile->programs.push_back(std::move(*layers));
    }
    // Saved before it is shown: minutes of measuring must not be lost to a closed pipe.
    if (const auto ok = formats::save_text(out_, formats::profile_text(*profile)); !ok)
      return out.failure(ok.error());
    out.document(document_of(*profile, out_));
    show(out, *profile);
    warn_of_spread(out, *profile);
    return exit_done;
  }

 private:
  expected<layers_profile> measure_program(
      const std::function<void(const std::string&, double)>& progress) {
    std::error_code error;
    auto& file = program_.program.file;
    if (!fs::exists(file, error)) return refuse(reason::kind::invalid, "{}: no such file", file);
    auto whole = absolute_path(file);
    if (!whole) return refuse(whole.error());
    file = std::move(*whole);
    program_.device = wish_.device;
    program_.index = wish_.index;
    program_.rows = wish_.rows;
    std::ranges::sort(program_.rows);
    program_.rounds = wish_.rounds;
    program_.busy = wish_.busy;
    program_.progress = progress;
    return profile_program(program_);
  }

  /// On a busy machine the times vary, and are too long.
  static void warn_of_spread(const output& out, const device_profile& p) {
    // Idle devices repeat a measurement within a few percent.
    constexpr double quiet = 0.1;
    double max = 0;
    std::size_t parts = 0, wide = 0;
    for (const auto& m : p.models)
      for (const auto& point : m.points)
        for (const auto* t : {&point.attention, &point.mlp, &point.embedding, &point.head,
                              &point.ends, &point.plain}) {
          ++parts;
          wide += t->spread > quiet ? 1 : 0;
          max = std::max(max, t->spread);
        }
    for (const auto& m : p.programs)
      for (const auto& point : m.points)
        for (const auto& layer : point.layers) {
          ++parts;
          wide += layer.times.spread > quiet ? 1 : 0;
          max = std::max(max, layer.times.spread);
        }
    if (wide > 0)
      out.note(
          "troupe: {} of {} parts varied by more than {:.0f} % between rounds (at most {:.0f} %): "
          "the device was probably busy; measure again when it is idle, or with more --rounds",
          wide, parts, 100 * quiet, 100 * max);
  }

  void show(const output& out, const device_profile& p) const {
    out.line("{} ({}), {}, {}, {}", p.device, p.kind, p.driver, p.runtime, p.libraries);
    const auto& c = p.clocks;
    if (c.core_mhz > 0)
      out.line("{:.0f} MHz now{}", c.core_mhz,
               c.core_max_mhz > 0 ? fmt::format(", {:.0f} at most", c.core_max_mhz) : "");
    out.line("{:.2f} of {:.2f} GB of memory free", static_cast<double>(p.free_bytes) / 1e9,
             static_cast<double>(p.total_bytes) / 1e9);
    const auto& r = p.copies;
    if (r.to_device_gbytes_s > 0)
      out.line("copies: {:.1f} GB/s to the device, {:.1f} from it", r.to_device_gbytes_s,
               r.from_device_gbytes_s);
    out.line("copies: {:.1f} GB/s on the device", r.on_device_gbytes_s);
    for (const auto& a : r.all_reduces)
      out.line("all-reduce over {} devices: {:.1f} GB/s, small tensors {:.1f} us", a.devices,
               a.gbytes_s, a.small_us);
    out.line("all-reduce: {}", r.all_reduce);
    for (const auto& m : p.models)
      out.text(fmt::format("\n{}: hidden {}, {} heads, vocabulary {}\n\n{}", m.name, m.hidden,
                           m.heads, m.vocabulary, table_of(m)));
    for (const auto& m : p.programs)
      out.text(fmt::format("\n{}: {} layers\n\n{}", m.name, m.points.front().layers.size(),
                           table_of(m)));
    const auto type = type_of(p);
    out.line("\n{}: use it in a cluster file (gpus: {{{}: {{profile: {}}}}}) or with --profile",
             out_, type.empty() ? "A40" : type, fs::path{out_}.filename().string());
  }

  gpu::profile_wish wish_{.models = {},
                          .rows = {},
                          .sequences = {},
                          .tensor_parallel = {},
                          .progress = {},
                          .not_measured = {}};
  program_wish program_{};
  std::vector<std::string> models_;
  std::string out_ = "profile.yaml";
  CLI::Option* links_ = nullptr;
  std::string link_to_, listen_;
  std::uint32_t flows_ = 4;
};

}  // namespace

std::unique_ptr<verb> make_profile() {
  return std::make_unique<profile_verb>();
}

}  // namespace troupe::cli
