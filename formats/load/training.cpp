#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "formats/load/groups.hpp"
#include "formats/load/key_reader.hpp"
#include "formats/load/load.hpp"
#include "formats/load/part_readers.hpp"
#include "messages/admission/admission.hpp"
#include "messages/admission/limits.hpp"
#include "messages/admission/tuning.hpp"
#include "messages/base/absolute_path.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/model_files.hpp"

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

// Paths of a training leave this machine: every node opens them, so they become absolute here,
// whether or not the file exists on this machine.
fs::path absolute_in(const fs::path& named, const fs::path& directory) {
  const auto path = directory / named;
  return fs::path{absolute_path(path).value_or(path)}.lexically_normal();
}

}  // namespace

// Where it exists: next to the file, in the current directory, among the shipped files. Else as if
// next to the file.
std::string found_path(const std::string& named, const fs::path& directory) {
  if (named.empty()) return named;
  std::error_code error;
  auto file = find_file(named, directory);
  const auto shipped = configs_directory().parent_path() / named;
  if (file.empty() && fs::exists(shipped, error)) file = shipped;
  return file.empty() ? absolute_in(named, directory).string() : absolute_in(file, "").string();
}

namespace {

// `base:`, the fine-tuning of a model folder.
using admission::key_table;
using admission::key_use;
using admission::range;
using admission::word_list;

constexpr range part_of_one{0, 1}, beta{0, 0.999999};

const key_table<tuning>& tuning_keys() {
  using t = tuning;
  static const key_table<t> rows{
      {"base", &t::base, key_use{.required = true}},
      {"initial", &t::initial, word_list{"random"}},
      {"sequence", &t::sequence, range{2, admission::max_sequence}},
      {"packing", &t::packing},
      {"train_on", &t::train_on, word_list{"answers", "all"}},
      {"too_long", &t::too_long, word_list{"refuse", "drop", "cut"}},
      {"date", &t::date},
      {"eval_data", &t::eval_data},
      {"held_out", &t::held_out, range{0, 0.9}},
      {"evaluate_every", &t::evaluate_every, range{0, 1e9}},
      {"epochs", &t::epochs, range{0, 1e6, true}},
      {"warmup", &t::warmup, part_of_one},
      {"decay", &t::decay, word_list{"cosine", "linear", "constant"}},
      {"final_rate", &t::final_rate, range{0, 100}},
      {"clip", &t::clip, range{0, 1e9}},
      {"precision", &t::precision, word_list{"fp32", "bf16", "fp16"}},
      {"frozen_layers", &t::frozen_layers, range{0, admission::max_layers}},
  };
  return rows;
}

const key_table<tuning>& adapter_keys() {
  using t = tuning;
  static const key_table<t> rows{
      {"rank", &t::adapter_rank, range{1, admission::max_lora_rank}},
      {"alpha", &t::adapter_alpha, range{0, 1e6, true}},
      {"targets", &t::adapter_targets},
      {"rslora", &t::adapter_rslora},
  };
  return rows;
}

/// Two numbers, of the optimizer's means.
void read_betas(map_reader& train, tuning& u) {
  const auto* list = train.list("betas");
  if (!list) return;
  if (list->items.size() != 2)
    return train.fail("betas", "found {} numbers, expected two", list->items.size());
  double* both[] = {&u.beta_1, &u.beta_2};
  for (std::size_t i = 0; i < 2; ++i)
    read_number(train.found(), list->items[i], inside(inside(train.place(), "betas"), i), *both[i],
                beta);
}

void read_base(map_reader& train, tuning& u, std::uint64_t seed, const fs::path& directory) {
  const auto named = u.base;
  u.base = found_path(named, directory);
  std::error_code error;
  if (!fs::is_regular_file(fs::path{u.base} / "config.json", error))
    return train.fail("base",
                      "found no folder '{}' with a config.json, neither next to this file nor in "
                      "the current directory, expected a model's folder",
                      shown(named));
  served_model_files files;
  files.folder = u.base;
  if (!u.initial.empty()) files.random_weights = seed;
  const auto hash = hash_of_model_files(files);
  if (!hash) return train.found().add(hash.error());
  u.hash = *hash;
}

/// Keys that exclude each other, or that nothing would read.
void check_tuning_keys(map_reader& train, const tuning& u) {
  for (const auto* key : {"program", "arguments", "vocabulary"})
    if (train.find(key))
      train.fail(
          key,
          "found with base, which has its own layers and tokenizer; expected only one of the two");
  if (u.held_out > 0 && !u.eval_data.empty())
    train.fail("held_out", "found with eval_data, which is held out; expected one of them");
  if (train.find("evaluate_every") && !u.has_held_out())
    train.fail("evaluate_every", "found without held_out or eval_data, expected one of them");
  if (train.find("target_loss") && !u.has_held_out())
    train.fail(
        "target_loss",
        "found without held_out or eval_data, expected one of them: it is a loss of held-out "
        "samples");
  else if (train.find("target_loss") && u.evaluate_every == 0)
    train.fail("target_loss",
               "found with evaluate_every 0, expected 1 or more: no loss is known before the last "
               "update");
  if (u.adapter_rank > 0 && u.frozen_layers > 0)
    train.fail("frozen_layers",
               "found with adapter, which freezes all layers; expected only one of the two");
  if (u.adapter_rank > 0 && !u.initial.empty())
    train.fail("initial",
               "found with adapter, which is beside the folder's weights; expected only one of the "
               "two");
}

std::string arguments_of(const tuning& u) {
  return nlohmann::json{{"base", u.base},
                        {"hash", u.hash},
                        {"initial", u.initial},
                        {"data", u.data},
                        {"sequence", u.sequence},
                        {"packing", u.packing},
                        {"train_on", u.train_on},
                        {"too_long", u.too_long},
                        {"date", u.date},
                        {"eval_data", u.eval_data},
                        {"held_out", u.held_out},
                        {"evaluate_every", u.evaluate_every},
                        {"epochs", u.epochs},
                        {"learning_rate", u.learning_rate},
                        {"weight_decay", u.weight_decay},
                        {"warmup", u.warmup},
                        {"decay", u.decay},
                        {"final_rate", u.final_rate},
                        {"clip", u.clip},
                        {"beta_1", u.beta_1},
                        {"beta_2", u.beta_2},
                        {"precision", u.precision},
                        {"frozen_layers", u.frozen_layers},
                        {"adapter_rank", u.adapter_rank},
                        {"adapter_alpha", u.adapter_alpha},
                        {"adapter_targets", u.adapter_targets},
                        {"adapter_rslora", u.adapter_rslora}}
      .dump();
}

// Weights of a folder learn at lower rates than fresh ones, and adapters at about ten times those
// of all weights.
void read_tuning(map_reader& train, training& t, const fs::path& directory) {
  constexpr double adapter_rate = 2e-4, full_rate = 2e-5;
  tuning u;
  read_keys(train, tuning_keys(), u);
  auto worker = admission::program_keys();
  std::erase_if(worker, [](const auto& k) { return k.name == "program" || k.name == "arguments"; });
  read_keys(train, worker, t.program.emplace());
  read_betas(train, u);
  train.section("adapter", [&](map_reader& map) {
    u.adapter_rank = 16;
    read_keys(map, adapter_keys(), u);
  });
  check_tuning_keys(train, u);
  train.find("data", need::required);
  u.data = found_path(t.data, directory);
  if (!u.eval_data.empty()) u.eval_data = found_path(u.eval_data, directory);
  const double usual = u.adapter_rank > 0 ? adapter_rate : full_rate;
  u.learning_rate = train.find("learning_rate") ? t.learning_rate : usual;
  u.weight_decay = train.find("weight_decay") ? t.weight_decay : 0;
  t.learning_rate = u.learning_rate;  // a job's text has both
  t.weight_decay = u.weight_decay;
  if (train.found().good()) read_base(train, u, t.seed, directory);
  t.program->arguments = arguments_of(u);
}

}  // namespace

expected<model> describe_tuning(job_spec& job, stated_counts stated,
                                const program_description& describe) {
  auto& p = *job.train->program;
  auto arguments = nlohmann::json::parse(p.arguments, nullptr, false);
  arguments["global_batch"] = stated.batch ? job.global_batch : 0;
  arguments["seed"] = job.train->seed;
  arguments["iterations"] = stated.iterations ? job.iterations : 0;
  p.arguments = arguments.dump();
  auto m = describe(p);
  if (!m) return m;
  arguments = nlohmann::json::parse(p.arguments, nullptr, false);
  job.global_batch = arguments.value("global_batch", job.global_batch);
  job.iterations = arguments.value("iterations", job.iterations);
  for (const auto* name : {"global_batch", "iterations", "seed"}) arguments.erase(name);
  p.arguments = arguments.dump();
  return m;
}

namespace {

/// A scalar as JSON has it: numbers and booleans as such, unless they are quoted.
nlohmann::json scalar_of(const value& v) {
  if (!v.quoted) {
    auto read = nlohmann::json::parse(v.text, nullptr, false);
    if (read.is_number() || read.is_boolean()) return read;
  }
  return v.text;
}

/// A map of numbers, texts and booleans, for a program's functions.
std::string read_arguments(map_reader& train) {
  const auto* map = train.find("arguments");
  if (!map) return {};
  if (map->what != value::kind::map) {
    train.fail("arguments", "found {}, expected a map", describe(*map));
    return {};
  }
  auto out = nlohmann::json::object();
  for (std::size_t i = 0; i < map->keys.size(); ++i) {
    if (map->items[i].what != value::kind::scalar) {
      train.fail("arguments", "found {} for '{}', expected a number, text, true or false",
                 describe(map->items[i]), shown(map->keys[i]));
      return {};
    }
    out[map->keys[i]] = scalar_of(map->items[i]);
  }
  return out.dump();
}

// Each reason names what the file of a program has in the key's place.
void read_program(map_reader& train, training& t, const fs::path& directory) {
  auto& p = t.program.emplace();
  read_keys(train, admission::program_keys(), p);
  p.arguments = read_arguments(train);
  p.file = found_path(p.file, directory);
  for (const auto& [key, has] : {std::pair{"data", "dataset"},
                                 {"vocabulary", "dataset"},
                                 {"learning_rate", "optimizer"},
                                 {"weight_decay", "optimizer"}})
    if (train.find(key))
      train.fail(key, "found with program, whose file has its own {}; expected one of them", has);
}

// A simulated device reads no data.
training read_train(map_reader& map, const value& v, const fs::path& directory) {
  map_reader train{map.found(), v, "train"};
  training t;
  read_keys(train, admission::train_keys(), t);
  const bool tunes = train.find("base") != nullptr;
  if (tunes)
    read_tuning(train, t, directory);
  else if (train.find("program"))
    read_program(train, t, directory);
  else if (!is_simulated(t.device))
    train.find("data", need::required);
  std::optional<device_profile> profile;
  read_named_profile(train, directory, profile);
  if (profile) t.profile.push_back(std::move(*profile));
  if (t.target_loss && !tunes)
    train.fail("target_loss",
               "found without base, expected it: no other training has held-out samples "
               "of its data");
  train.finish();
  for (const auto& [key, path] :
       {std::pair{"data", &t.data}, {"vocabulary", &t.vocabulary}, {"checkpoint", &t.checkpoint}})
    if (train.find(key) && path->empty()) train.fail(key, "found '', expected a path");
  // That of a program is not the built-in trainer's.
  t.data = tunes ? std::string{} : found_path(t.data, directory);
  t.vocabulary = found_path(t.vocabulary, directory);
  if (!t.checkpoint.empty()) t.checkpoint = absolute_in(t.checkpoint, directory).string();
  return t;
}

/// Converts layers or operators of each stage to pieces. A layer may be split: a stage with x.5
/// layers ends with an attention or begins with an MLP.
void read_cut(map_reader& pipeline, const model& m, pipeline_wish& w) {
  const auto* list = pipeline.list("cut", 1);
  if (!list) return;
  const bool operators = admission::is_given_as_operators(m.family);
  const double pieces_each = operators ? 1 : 2;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    double n = 0;
    if (!read_number(pipeline.found(), list->items[i], inside(inside(pipeline.place(), "cut"), i),
                     n, range{0, admission::max_operators}))
      return;
    const double pieces = n * pieces_each;
    if (pieces != std::floor(pieces))
      return pipeline.fail("cut", "found {}, expected {}", n,
                           operators ? "whole numbers of operators" : "layers, whole or halves");
    w.cut.push_back(static_cast<std::uint32_t>(pieces));
  }
  if (w.stages == 0) w.stages = static_cast<std::uint32_t>(w.cut.size());
}

/// true, false or layers.
// A boolean with a third value, which arrived later; files with true and false keep their meaning.
void read_recompute(map_reader& pipeline, pipeline_wish& w) {
  const auto* v = pipeline.find("recompute");
  if (!v) return;
  const bool word = v->what == value::kind::scalar;
  if (word && v->text == "layers")
    w.recompute_layers = true;
  else if (word && !v->quoted && (v->text == "true" || v->text == "false"))
    w.recompute = v->text == "true";
  else
    pipeline.fail("recompute", "found {}, expected true, false or layers", describe(*v));
}

// The cut is read after the model, whose kind decides whether its numbers are layers or operators.
pipeline_wish read_pipeline(map_reader& pipeline, const job_spec& job, const fs::path& directory) {
  pipeline_wish w;
  read_keys(pipeline, admission::pipeline_keys(job.slots.has_value()), w);
  read_recompute(pipeline, w);
  read_cut(pipeline, job.model, w);
  if (const auto* lent = pipeline.find("bubbles")) {
    const bool files = job.train && !is_simulated(job.train->device);
    w.bubbles = read_bubbles(pipeline.found(), *lent, files, directory);
    if (job.train && job.train->target_loss)
      pipeline.fail("bubbles",
                    "found with train.target_loss, expected one of them: what is lent follows a "
                    "schedule that an early end would break");
  }
  if (pipeline.find("groups")) w.groups = read_chosen_groups(pipeline, nullptr);
  return w;
}

}  // namespace

void read_training(map_reader& map, job_spec& job, const fs::path& directory) {
  if (const auto* train = map.find("train")) job.train = read_train(map, *train, directory);
  const bool slots = map.section("slots", [&](map_reader& costs) {
    read_keys(costs, admission::slot_keys(), job.slots.emplace());
  });
  const auto read = [&](map_reader& p) { job.pipeline = read_pipeline(p, job, directory); };
  map.section("pipeline", read, slots ? need::required : need::optional);
}

}  // namespace troupe::formats
