#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "formats/load/load.hpp"
#include "messages/admission/admission.hpp"
#include "messages/admission/admission_problems.hpp"
#include "messages/admission/job_keys.hpp"
#include "messages/admission/retries.hpp"
#include "messages/domain/work_kind.hpp"

// The reverse of job.cpp. Values are JSON, which is YAML, too: a list or map is one line.
//
// Profiles, costs and timelines of a training come from other files or from planners, and are left
// out.
namespace troupe::formats {

namespace {

using json = nlohmann::ordered_json;
using admission::key_table;

template <class T, class Value>
json value_of(const admission::key<T>& k, const Value& x) {
  if constexpr (requires { x.value(); })
    return x ? value_of(k, *x) : json();
  else if constexpr (std::is_enum_v<Value>)
    return k.words.at(static_cast<std::size_t>(x));
  else
    return x;
}

/// The rows that have a field, if it is given or the key is required.
template <class T>
void add_keys(json& map, const key_table<T>& keys, const T& object) {
  for (const auto& k : keys)
    admission::with_field(
        k, object,
        [&](const auto& found, const auto& initial) {
          if (k.use.required || found != initial) map[std::string{k.name}] = value_of(k, found);
          return true;
        },
        false);
}

json model_map(const model& m) {
  const bool operators = admission::is_given_as_operators(m.family);
  json map{{"name", m.name}};
  add_keys(map, admission::model_keys(operators), m);
  for (const auto& op : m.operators) {
    auto& to = map["operators"].emplace_back(json{{"name", op.name},
                                                  {"flops", op.flops},
                                                  {"parameters", op.parameters},
                                                  {"output_bytes", op.output_bytes}});
    if (!has_program_layers(m)) continue;
    to["kept_bytes"] = op.kept_bytes;
    to["state_bytes"] = op.state_bytes;
    if (op.glued) to["glued"] = true;
  }
  return map;
}

void add_files(json& map, const served_model_files& files) {
  map["model"] = files.folder;
  map["name"] = files.name;
  if (files.random_weights) map["random_weights"] = *files.random_weights;
}

json serve_map(const serving& s) {
  json map = json::object();
  add_files(map, s.model);
  add_keys(map, admission::serve_keys(), s);
  map["max_sequences"] = s.max_sequences;  // its default depends on max_running
  map["prefill"] = s.bubbles ? "bubbles" : "decoder";
  map["fallback"] = s.fallback ? "decoder" : "none";
  if (s.adapters)
    for (const auto& a : *s.adapters)
      map["adapters"].push_back({{"name", a.name}, {"folder", a.folder}});
  return map;
}

json pipeline_map(const job_spec& job) {
  const auto& w = job.pipeline;
  json map = json::object();
  add_keys(map, admission::pipeline_keys(job.slots.has_value()), w);
  if (recomputes_layers(w))
    map["recompute"] = "layers";
  else if (!w.recompute)
    map["recompute"] = false;
  const double pieces_each = job.model.operators.empty() ? 2 : 1;
  for (const auto pieces : w.cut) map["cut"].push_back(pieces / pieces_each);
  if (w.groups)
    for (const auto& g : *w.groups) {
      auto& to = map["groups"].emplace_back(json::object());
      add_keys(to, admission::group_keys(), g);
      for (const auto& s : g.stages)
        add_keys(to["stages"].emplace_back(json::object()), admission::group_stage_keys(), s);
    }
  if (w.bubbles) {
    auto& bubbles = map["bubbles"] = json::object();
    add_files(bubbles, w.bubbles->model);
    add_keys(bubbles, admission::bubble_keys(), *w.bubbles);
  }
  return map;
}

json elastic_map(const elastic& e) {
  json map = json::object();
  if (e.same_gpus)
    map["gpus"] = "same";
  else if (e.max_gpus > 0 || e.min_gpus > 1)
    map["gpus"] =
        json::array({e.min_gpus, e.max_gpus > 0 ? e.max_gpus : std::uint32_t{admission::max_gpus}});
  if (e.same_types) map["types"] = "same";
  if (!e.types.empty()) map["types"] = e.types;
  if (e.any_layout) map["layouts"] = "any";
  add_keys(map, admission::elastic_keys(), e);
  for (const auto& rate : e.rates) {
    auto& to = map["rates"].emplace_back(json::object());
    add_keys(to, admission::rate_keys(), rate);
  }
  return map;
}

json retries_map(const retry_rule& r) {
  json map = json::object();
  add_keys(map, admission::retry_keys(), r);
  map["attempts"] = r.attempts;  // its default in files is not the initial value
  if (r.delay_s > retry_rule{}.max_delay_s) map["max_delay_s"] = r.max_delay_s;
  for (const auto w : r.on) map["on"].push_back(to_string(w));
  if (!r.unless_exit.empty()) map["unless_exit"] = r.unless_exit;
  return map;
}

/// The keys of a training of a model folder, which are the arguments of its program. What the
/// reader counts itself is left out, and texts that are empty.
json tuning_map(const layer_file& p, json map) {
  auto arguments = json::parse(p.arguments, nullptr, false);
  const auto taken = [&](const char* name) {
    auto value = arguments.value(name, json());
    arguments.erase(name);
    return value;
  };
  for (const auto* counted : {"hash", "rows", "trained_tokens", "held_out_rows"}) taken(counted);
  map["betas"] = {taken("beta_1"), taken("beta_2")};
  json adapter;
  for (const auto* key : {"rank", "alpha", "targets", "rslora"})
    adapter[key] = taken((std::string{"adapter_"} + key).c_str());
  if (adapter["rank"] != 0) map["adapter"] = std::move(adapter);
  if (arguments.value("held_out", 0.0) == 0 && arguments.value("eval_data", "").empty())
    taken("evaluate_every");
  for (const auto& [key, value] : arguments.items())
    if (value != "" && !(key == "sequence" && value == 0)) map[key] = value;
  add_keys(map, admission::program_keys(), p);
  map.erase("program");
  return map;
}

json train_map(const training& t) {
  json map = json::object();
  add_keys(map, admission::train_keys(), t);
  if (!t.program) return map;
  if (t.program->file.empty()) return tuning_map(*t.program, std::move(map));
  add_keys(map, admission::program_keys(), *t.program);
  if (!t.program->arguments.empty())
    map["arguments"] = json::parse(t.program->arguments, nullptr, false);
  return map;
}

void add_memory(json& file, const memory_options& o) {
  add_keys(file, admission::memory_keys(), o);
  file["zero"] = o.zero;  // also if it is the only one, with its default
  if (o.lora_rank > 0) add_keys(file["lora"] = json::object(), admission::lora_keys(), o);
}

/// `gpus` is what the program gets, or an upper bound; else it is the default.
void add_gpus(json& file, const job_spec& job) {
  file.erase("gpus");
  const bool is_bound = !facts_of(job).has_processes && job.limits.max_gpus == job.request.gpus;
  if (is_bound) file.erase("max_gpus");
  if (is_bound || job.request.exact || facts_of(job).elastic) file["gpus"] = job.request.gpus;
  // same_gpus makes a number exact that the file gives.
  if (job.program.elastic && job.program.elastic->same_gpus && !job.request.exact)
    file.erase("gpus");
}

json file_of(const job_spec& job) {
  json file{{"name", job.name}};
  auto keys = admission::job_keys(!facts_of(job).has_processes && !job.slots && !job.serve);
  if (job.serve) std::erase_if(keys, [](const auto& k) { return !k.use.served; });
  // That of a model folder is the folder's.
  const bool tunes = job.train && job.train->program && job.train->program->file.empty();
  if (!job.serve && !job.slots && !job.assumed.model && !tunes)
    file["model"] = model_map(job.model);
  if (facts_of(job).has_processes) file["command"] = job.program.command;
  add_keys(file, keys, job);
  add_gpus(file, job);
  if (job.assumed.iterations == false) file["iterations"] = job.iterations;
  if (job.assumed.batch == false) file["global_batch"] = job.global_batch;
  if (!job.program.environment.empty()) file["environment"] = job.program.environment;
  if (job.program.elastic) file["elastic"] = elastic_map(*job.program.elastic);
  if (job.program.retries) file["retries"] = retries_map(*job.program.retries);
  if (job.train) file["train"] = train_map(*job.train);
  if (job.slots) add_keys(file["slots"] = json::object(), admission::slot_keys(), *job.slots);
  if (job.pipeline != pipeline_wish{}) file["pipeline"] = pipeline_map(job);
  if (job.memory) add_memory(file, *job.memory);
  if (job.serve) file["serve"] = serve_map(*job.serve);
  return file;
}

}  // namespace

std::string job_text(const job_spec& job) {
  std::string text;
  const auto file = file_of(job);
  for (const auto& [key, value] : file.items())
    text += key + ": " + value.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
  return text;
}

std::string model_text(const model& m) {
  std::string text;
  const auto map = model_map(m);
  for (const auto& [key, value] : map.items()) {
    if (key != "operators") {
      text += fmt::format("{}: {}\n", key, value.dump());
      continue;
    }
    text += "operators:\n";
    for (const auto& op : value) text += fmt::format("  - {}\n", op.dump());
  }
  return text;
}

}  // namespace troupe::formats
