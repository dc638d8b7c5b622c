#include "cli/programs/described_program.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "cli/output/output_file.hpp"
#include "cli/programs/python_module.hpp"
#include "formats/load/load.hpp"
#include "gpu/examples/tuning_rows.hpp"
#include "messages/admission/admission.hpp"
#include "messages/admission/admission_problems.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/untrusted_file.hpp"
#include "messages/domain/work_kind.hpp"
#include "runtime/process/python_package.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// `shared`: parameters of it that another layer has, too; they are the first one's.
model_operator operator_of(const json& layer, std::size_t index, double shared) {
  model_operator op;
  op.name = fmt::format("{}-{}", index, layer.at("name").get<std::string>());
  for (auto& c : op.name)
    if (!admission::is_name(std::string_view{&c, 1})) c = '_';
  constexpr std::size_t max_name = 64;
  op.name.resize(std::min(op.name.size(), max_name));
  op.flops = layer.at("forward_flops").get<double>();
  // A weight that is not trained has 4 bytes, and no gradient. Those that two layers share are
  // counted with gradients.
  const auto all = layer.at("parameters").get<double>();
  op.parameters = std::max(layer.at("trainable").get<double>(), shared);
  op.output_bytes = layer.at("output_bytes").get<double>();
  op.kept_bytes = layer.at("kept_bytes").get<double>();
  op.state_bytes = layer.at("state_bytes").get<double>() + 4 * (all - op.parameters);
  return op;
}

troupe::model model_of(const json& found, const layer_file& p) {
  troupe::model m;
  m.name = fs::path{p.file}.stem().string();
  m.family = "layers";
  m.tied_head = !found.at("tied").is_null();
  if (const auto tied = found.at("tied_parameters").get<double>(); tied > 0)
    m.tied_parameters = tied;
  if (!found.at("clip_norm").is_null() || found.at("precision") == "fp16") m.needs_norm = true;
  for (const auto& layer : found.at("layers")) {
    const auto index = m.operators.size();
    const auto shared = index == 0 ? m.tied_parameters.value_or(0) : 0;
    m.operators.push_back(operator_of(layer, index, shared));
  }
  if (!m.operators.empty())  // the loss is in the last layer's stage
    m.operators.back().kept_bytes += found.at("loss_kept_bytes").get<double>();
  for (const auto& range : found.at("glued"))
    for (auto i = range.at("first").get<std::size_t>() + 1; i <= range.at("last"); ++i)
      m.operators.at(i).glued = true;
  m.layers = static_cast<std::uint32_t>(m.operators.size());
  return m;
}

}  // namespace

expected<described_program> describe_program(const layer_file& p) {
  return describe_program(p, "troupe.describe", {});
}

expected<described_program> describe_program(const layer_file& p, const std::string& module,
                                             const std::vector<std::string>& more,
                                             const std::function<void(const std::string&)>& watch) {
  temporary_directory files;
  const auto out = files.file("description.json");
  std::vector<std::string> arguments{p.file, "--out", out};
  if (!p.arguments.empty()) arguments.insert(arguments.end(), {"--arguments", p.arguments});
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto ended = run_python_module(module, p.python, arguments,
                                       fs::path{p.file}.parent_path().string(), watch);
  if (!ended) return refuse(ended.error());
  constexpr std::size_t max_bytes = 64 << 20;
  const auto text = read_file(out, max_bytes);
  const auto found = text ? json::parse(*text, nullptr, false) : json(json::value_t::discarded);
  if (found.is_discarded())
    return refuse(reason::kind::invalid, "{}: {} ended with exit status {}: {}", p.file,
                  runtime::python_interpreter(p.python), ended->status, ended->last_line);
  if (!found.at("refusals").empty())
    return refuse(reason::kind::invalid, "{}", found.at("refusals").front().get<std::string>());
  described_program d{{}, found.at("sha256").get<std::string>(), found};
  try {
    d.model = model_of(found, p);
  } catch (const json::exception& e) {
    return refuse(reason::kind::malformed, "{}: its description is not as expected: {}", p.file,
                  e.what());
  }
  if (const auto bad = admission::check_model(d.model))
    return refuse(reason::kind::invalid, "{}: {}", p.file, *bad);
  return d;
}

namespace {

/// A batch of which an epoch has 50, of 4 to 64 samples: small data would have few updates else.
std::uint64_t usual_batch(std::uint64_t rows) {
  constexpr std::uint64_t updates = 50, smallest = 4, largest = 64;
  return std::clamp(std::bit_floor(std::max<std::uint64_t>(rows / updates, 1)), smallest, largest);
}

/// The numbers that follow from those of the rows, where the job has none.
std::uint64_t complete_counts(layer_file& p, const tuning& u) {
  auto arguments = json::parse(p.arguments, nullptr, false);
  auto batch = arguments.value("global_batch", std::uint64_t{0});
  auto iterations = arguments.value("iterations", std::uint64_t{0});
  if (batch == 0) batch = usual_batch(u.rows);
  if (iterations == 0)
    iterations = static_cast<std::uint64_t>(
        std::ceil(u.epochs * static_cast<double>(u.rows) / static_cast<double>(batch)));
  arguments["global_batch"] = batch;
  arguments["iterations"] = iterations;
  p.arguments = arguments.dump();
  return iterations;
}

expected<troupe::model> describe_folder(layer_file& p) {
  const auto read = gpu::tuning_of(p);
  if (!read) return refuse(read.error());
  auto u = **read;
  if (u.date.empty()) u.date = gpu::today();
  const auto seed = json::parse(p.arguments, nullptr, false).value("seed", std::uint64_t{1});
  const auto rows = gpu::read_tuning_rows(u, seed);
  if (!rows) return refuse(rows.error());
  u.rows = rows->trained.rows.size();
  u.trained_tokens = rows->trained.trained_tokens;
  u.sequence = rows->trained.sequence;
  u.held_out_rows = rows->held_out ? rows->held_out->rows.size() : 0;
  gpu::add_counts(p, u);
  const auto updates = complete_counts(p, u);
  const auto package = runtime::find_python_package();
  if (!package)
    return refuse(reason::kind::unavailable, "the Python package of this program is missing");
  temporary_directory folder;
  const auto files =
      gpu::write_tuning_rows(fs::path{folder.file("rows")}.parent_path().string(), *rows);
  if (!files) return refuse(files.error());
  auto own = p;
  own.file = (package->folder / "troupe" / "programs" / gpu::tuning_program).string();
  own.arguments = gpu::program_arguments(u, *files, updates);
  auto d = describe_program(own);
  if (!d) return refuse(d.error());
  if (const auto name = fs::path{u.base}.filename().string(); admission::is_name(name))
    d->model.name = name;
  return std::move(d->model);
}

/// Programs and scripts that are given in a job file's place; empty: it is neither.
std::string advice_on_program(const fs::path& file) {
  const auto extension = file.extension().string();
  const auto name = file.string();
  if (extension == ".py")
    return fmt::format(
        "{0}: found a Python program, expected a job file: `train: {{program: {1}}}` trains its "
        "layers (`troupe describe {0}`), `troupe submit -- python3 {0}` runs it",
        name, file.filename().string());
  std::ifstream in{file};
  std::string begin(2, ' ');
  const bool script = extension == ".sh" || extension == ".bash" || extension == ".sbatch" ||
                      (in.read(begin.data(), 2) && begin == "#!");
  if (!script) return {};
  return fmt::format("{0}: found a script, expected a job file; `troupe submit -- sh {0}` runs it",
                     name);
}

expected<job_spec> load(const std::string& file, std::span<const gpu_type> catalogue,
                        std::vector<std::string>* notices,
                        const std::function<void(const layer_file&)>& before) {
  if (auto advice = advice_on_program(file); !advice.empty())
    return refuse(reason::kind::invalid, std::move(advice));
  return formats::load_job(file, catalogue, notices, [&](layer_file& p) -> expected<troupe::model> {
    if (before) before(p);
    if (p.file.empty()) return describe_folder(p);
    auto d = describe_program(p);
    if (!d) return refuse(d.error());
    p.sha256 = d->sha256;
    return std::move(d->model);
  });
}

}  // namespace

job_spec as_program(job_spec job, const job_spec& read) {
  if (facts_of(read).simulated) job.program.command = {job.name};
  return job;
}

expected<job_spec> load_job(const std::string& file, std::span<const gpu_type> catalogue,
                            std::vector<std::string>* notices) {
  return load(file, catalogue, notices, {});
}

expected<job_spec> load_job(const output& out, const std::string& file,
                            std::vector<std::string>* notices) {
  return load(file, {}, notices, [&](const layer_file& p) {
    out.note("troupe: reads {}",
             p.file.empty() ? "the folder and its data" : "the layers of " + p.file);
  });
}

}  // namespace troupe::cli
