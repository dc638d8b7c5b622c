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
#include "messages/base/absolute_path.hpp"
#include "messages/domain/device_kind.hpp"

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
  if (train.find("program"))
    read_program(train, t, directory);
  else if (!is_simulated(t.device))
    train.find("data", need::required);
  std::optional<device_profile> profile;
  read_named_profile(train, directory, profile);
  if (profile) t.profile.push_back(std::move(*profile));
  train.finish();
  for (const auto& [key, path] :
       {std::pair{"data", &t.data}, {"vocabulary", &t.vocabulary}, {"checkpoint", &t.checkpoint}})
    if (train.find(key) && path->empty()) train.fail(key, "found '', expected a path");
  t.data = found_path(t.data, directory);
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
