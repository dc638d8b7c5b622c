#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

#include "formats/load/foreign_keys.hpp"
#include "formats/load/key_reader.hpp"
#include "formats/load/load.hpp"
#include "formats/load/part_readers.hpp"
#include "messages/admission/admission.hpp"
#include "messages/base/environment.hpp"

namespace troupe::formats {

// A job file has one of these kinds of work, distinguished by its keys: `command` (a program),
// `train` (the built-in trainer), `slots` (a study), `serve` (a decoder), or none (simulated work
// of a model). Keys are rows of messages/admission/job_keys.cpp; this file reads what a row cannot
// say, and resolves paths relative to the file. At the end the controller's own check runs, so that
// `troupe submit` fails with a line number where the controller would refuse.
namespace fs = std::filesystem;

namespace {

/// Shipped models by name.
std::vector<std::string> shipped_models() {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at{configs_directory() / "models", error}, end; !error && at != end;
       at.increment(error))
    if (at->path().extension() == ".yaml") names.push_back(at->path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// A model by path, relative to the job's directory, the current one, or the shipped files; or a
/// shipped model's name.
// The file's own directory first: a job and its model are often kept together.
model read_named_model(map_reader& map, const fs::path& directory) {
  std::string named;
  if (!map.read("model", named)) return {};
  const auto shipped = configs_directory();
  auto file = find_file(named, directory);
  std::error_code error;
  if (file.empty() && fs::exists(shipped.parent_path() / named, error))
    file = shipped.parent_path() / named;
  const auto by_name = shipped / "models" / (named + ".yaml");
  if (file.empty() && is_name(named) && fs::exists(by_name, error)) file = by_name;
  if (file.empty() && is_hub_id(named)) {
    map.fail("model", hub_id_advice(named));
  } else if (file.empty()) {
    const auto stem = fs::path{named}.stem().string();
    const auto near = nearest_name(stem, shipped_models());
    map.fail("model", "no model '{}', neither next to this file nor in the current directory{}",
             shown(named),
             near ? fmt::format("; did you mean the shipped '{}'?", *near)
                  : fmt::format("; shipped models: {}", fmt::join(shipped_models(), ", ")));
  } else if (fs::is_directory(file, error)) {
    map.fail("model", "'{}' is a directory; expected a file", shown(named));
  } else {
    auto m = load_model(file);
    if (m) return std::move(*m);
    map.found().add(m.error());
  }
  return {};
}

// Names are variables and not keys of the format, so they are not checked for spelling.
void read_environment(map_reader& map, job_spec& job) {
  const auto* v = map.find("environment");
  if (!v) return;
  map_reader variables{map.found(), *v, "environment"};
  for (std::size_t i = 0; i < v->keys.size() && map.found().good(); ++i) {
    const auto& key = v->keys[i];
    if (!admission::is_variable(key))
      map.found().add(v->key_lines[i], "environment", "'{}' is not a valid variable name",
                      shown(key));
    if (is_reserved_variable(key))
      map.found().add(
          v->key_lines[i], "environment",
          "'{}' is set by Troupe for every program (docs/operating.md); a job cannot set it",
          shown(key));
    variables.read(key, job.program.environment[key]);
  }
}

void check_types(map_reader& map, const elastic& e, const std::vector<std::string>& names) {
  auto named = e.types;
  for (const auto& rate : e.rates) named.push_back(rate.gpu);
  for (const auto& type : named)
    if (std::ranges::find(names, type) == names.end())
      return map.fail("elastic", "unknown GPU '{}'{}", shown(type), hint(type, names));
}

/// Checks against the catalog, and the controller's own checks.
void check(map_reader& map, job_spec& job, std::span<const gpu_type> catalogue) {
  if (!map.found().good()) return;
  const auto names = names_of(catalogue);
  if (!job.request.type.empty() && !names.empty() &&
      std::ranges::find(names, job.request.type) == names.end())
    map.fail("gpu_type", "unknown GPU '{}'{}", shown(job.request.type),
             hint(job.request.type, names));
  if (job.program.elastic && !names.empty()) check_types(map, *job.program.elastic, names);
  // In a slot job, `train` only selects the schedule.
  if (job.train && job.slots) map.fail("slots", "slots and train exclude each other");
  if (const auto bad = admission::objection_to(job)) map.fail(bad->key, bad->problem);
}

/// The number of micro-batches may be given in either place.
// Different values in the two places are left for the check, which names both.
void refuse_microbatches_twice(job_spec& job) {
  if (!job.train && !job.slots && job.pipeline == pipeline_wish{}) return;
  if (job.microbatches && !job.pipeline.microbatches)
    job.pipeline.microbatches = *job.microbatches;
  else if (job.pipeline.microbatches && !job.microbatches)
    job.microbatches = job.pipeline.microbatches;
}

/// Files of other kinds are recognized by keys that only these have.
// Without this, the first error would be a missing key of jobs.
void refuse_other_kinds(findings& found, const value& tree) {
  if (tree.has("datacenters"))
    found.add(0, "", "this is a cluster, expected a job (`troupe up` runs a cluster)");
  else if (tree.has("layers") && tree.has("hidden"))
    found.add(0, "", "this is a model, expected a job (whose `model:` may name this file)");
}

/// Keys that users of other schedulers type.
void advise_on_foreign_keys(findings& found, const value& tree) {
  const auto own = admission::job_key_names();
  for (std::size_t i = 0; i < tree.keys.size(); ++i) {
    const auto& key = tree.keys[i];
    if (std::ranges::find(own, key) != own.end()) continue;
    if (const auto advice = advice_on_key(key); !advice.empty())
      found.add(tree.key_lines[i], "", "unknown key '{}'; {}", key, advice);
  }
}

/// The file's values are limits for every policy, and the number of GPUs for policies that need
/// one; of a program it is the number that it gets, of
/// one that may be resized the first that its policy is asked for.
void limit_gpus(map_reader& map, job_spec& job) {
  if (job.program.elastic && !map.find("gpus"))
    job.request.gpus = std::max(job.request.gpus, job.program.elastic->min_gpus);
  if (job.program.elastic && job.program.elastic->max_gpus > 0)
    job.limits.max_gpus = std::min(job.limits.max_gpus.value_or(job.program.elastic->max_gpus),
                                   job.program.elastic->max_gpus);
  if (map.find("gpus")) {
    if (job.limits.max_gpus && job.request.gpus > *job.limits.max_gpus)
      map.fail("gpus", admission::more_than_max_gpus(job));
    if (job.program.command.empty())
      job.limits.max_gpus = job.request.gpus;
    else if (!job.program.elastic || job.program.elastic->same_gpus)
      job.request.exact = true;
  }
  if (map.find("gpu_type")) job.limits.required_gpu_type = job.request.type;
}

/// For a program whose user named none.
void assume_model(map_reader& map, job_spec& job) {
  auto m = load_model(configs_directory() / "models" / "gpt2-124m.yaml");
  if (!m) return map.found().add(m.error());
  job.model = std::move(*m);
  job.assumed.model = true;
}

/// The model of a training's program, for a file that names none.
void describe_model(map_reader& map, job_spec& job, const program_description& describe) {
  if (!describe)
    return map.fail(
        "model", job.train->program->file.empty()
                     ? "missing; expected the model, or a command that reads it from train.base: "
                       "submit, plan, check, train"
                     : "missing; expected the file that `troupe describe PROGRAM --out FILE` "
                       "writes");
  if (!map.found().good()) return;
  auto& p = *job.train->program;
  auto m = p.file.empty()
               ? describe_tuning(
                     job, {map.find("global_batch") != nullptr, map.find("iterations") != nullptr},
                     describe)
               : describe(p);
  if (!m) return map.found().add(m.error());
  job.model = std::move(*m);
}

/// Has `train` this key?
bool trains(map_reader& map, const char* key) {
  const auto* train = map.find("train");
  return train && train->has(key);
}

/// A 1 that stands in for a number that nobody has given says so by itself (stated_length.hpp); one
/// that the file gives needs the flag.
void note_stated(map_reader& map, job_spec& job) {
  if (map.find("iterations") && job.iterations == 1) job.assumed.iterations = false;
  if (map.find("global_batch") && job.global_batch == 1) job.assumed.batch = false;
}

/// Keys of a program, a training or simulated work.
void read_work(map_reader& map, job_spec& job, const fs::path& directory,
               const program_description& describe) {
  const bool is_program = map.find("command") != nullptr;
  // A slot job has no model, and its batch is its micro-batches.
  const bool has_work = !is_program && map.find("slots") == nullptr;
  const bool tunes = trains(map, "base");
  const bool described = tunes || (trains(map, "program") && !map.find("model"));
  if (described) job.model.family = "layers";
  if (const auto* v = map.find("model", has_work && !described ? need::required : need::optional))
    job.model = v->what == value::kind::map ? read_model(map.found(), *v, "model", directory)
                                            : read_named_model(map, directory);
  else if (is_program)
    assume_model(map, job);
  if (map.read("command", job.program.command) && job.program.command.empty())
    map.fail("command",
             "found an empty list, expected a program and its arguments; a job without "
             "the key is simulated work");
  read_keys(map, admission::job_keys(has_work && !described), job);
  if (is_program) note_stated(map, job);
  read_elastic(map, job);
  read_retries(map, job);
  read_environment(map, job);
  read_training(map, job, directory);
  if (tunes && map.find("model"))
    map.fail("model", "found with train.base, whose folder is the model; expected one of them");
  if (described && job.train && job.train->program) describe_model(map, job, describe);
  read_memory(map, job);
}

/// Those of a job that serves a model, besides `serve`; read_serving() has refused the others.
void read_served(map_reader& map, job_spec& job) {
  auto keys = admission::job_keys();
  std::erase_if(keys, [](const auto& k) { return !k.use.served; });
  read_keys(map, keys, job);
}

expected<job_spec> read_job(const value& tree, const fs::path& file,
                            std::span<const gpu_type> catalogue,
                            const program_description& describe) {
  findings found{file.string()};
  refuse_other_kinds(found, tree);
  advise_on_foreign_keys(found, tree);
  map_reader map{found, tree, ""};
  job_spec job;
  map.read_name("name", job.name, need::required);
  read_serving(map, job, file.parent_path());
  if (map.find("serve"))
    read_served(map, job);
  else
    read_work(map, job, file.parent_path(), describe);
  limit_gpus(map, job);
  map.finish();
  refuse_microbatches_twice(job);
  check(map, job, catalogue);
  return found.result(std::move(job));
}

/// Keys of earlier versions, in the map under `section`; they are read until version 0.4.
struct renamed_key {
  std::string_view section, before, now;
};
constexpr renamed_key renamed_keys[] = {{"serve", "most_running", "max_running"},
                                        {"serve", "most_sequences", "max_sequences"}};

/// Gives renamed keys their present names, so that readers know only these. A map with both names
/// stays as it is: the old one is then an unknown key.
void rename_keys(value& tree, const std::string& file, std::vector<std::string>* notices) {
  for (const auto& k : renamed_keys) {
    if (!tree.has(k.section)) continue;
    auto& map = tree.items[tree.index_of(k.section)];
    if (!map.has(k.before) || map.has(k.now)) continue;
    const auto key = map.index_of(k.before);
    map.keys[key] = k.now;
    if (notices)
      notices->push_back(complaint(file, map.key_lines[key], k.section,
                                   fmt::format("'{}' is now '{}'; the old name is read until "
                                               "version 0.4",
                                               k.before, k.now))
                             .text);
  }
}

// A job may come as JSON text, from another program or a command's options.
/// Text without a file has no line numbers.
void forget_lines(value& v) {
  v.line = 0;
  std::fill(v.key_lines.begin(), v.key_lines.end(), 0);
  for (auto& item : v.items) forget_lines(item);
}

}  // namespace

expected<job_spec> load_job(const fs::path& file, std::span<const gpu_type> catalogue,
                            std::vector<std::string>* notices,
                            const program_description& describe) {
  auto tree = load_value(file);
  if (!tree) return refuse(tree.error());
  rename_keys(*tree, file.string(), notices);
  return read_job(*tree, file, catalogue, describe);
}

expected<job_spec> parse_job(const std::string& name, const std::string& json,
                             const program_description& describe) {
  auto tree = parse_json(name, json);
  if (!tree) return refuse(tree.error());
  forget_lines(*tree);
  rename_keys(*tree, name, nullptr);
  return read_job(*tree, name, {}, describe);
}

}  // namespace troupe::formats
