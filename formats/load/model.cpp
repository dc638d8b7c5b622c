#include "formats/load/part_readers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "formats/load/key_reader.hpp"
#include "formats/load/load.hpp"
#include "messages/admission/admission.hpp"

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

// A model has three sources: the sizes of a transformer, a list of operators, or a reference to a
// Hugging Face config.json with keys that override it.
void read_operators(map_reader& map, model& m) {
  const auto* list = map.list("operators", 1, need::required);
  if (!list) return;
  if (list->items.size() > admission::max_operators)
    return map.fail("operators", "found {}, expected at most {}", list->items.size(),
                    admission::max_operators);
  for (std::size_t i = 0; i < list->items.size() && map.found().good(); ++i) {
    map_reader one{map.found(), list->items[i], inside("operators", i)};
    model_operator op;
    one.read_name("name", op.name, need::required);
    one.read("flops", op.flops, {0, 1e18}, need::required);
    one.read("parameters", op.parameters, {0, 1e13}, need::required);
    const bool measured = has_program_layers(m);  // its last layer has none
    one.read("output_bytes", op.output_bytes, {0, 1e12, !measured}, need::required);
    if (measured) {
      one.read("kept_bytes", op.kept_bytes, {0, 1e15});
      one.read("state_bytes", op.state_bytes, {0, 1e15});
      one.read("glued", op.glued);
    }
    one.finish();
    for (const auto& other : m.operators)
      if (map.found().good() && other.name == op.name)
        one.fail("name", "duplicate name '{}'", op.name);
    m.operators.push_back(std::move(op));
  }
}

/// {huggingface: path}, and keys that override it.
// A path and never a download: the cluster's nodes may have no access to the hub, and a model that
// changes there would change the job.
model read_reference(map_reader& map, const fs::path& directory) {
  std::string named;
  model m;
  if (!map.read("huggingface", named)) return m;
  auto file = find_file(named, directory);
  std::error_code error;
  if (fs::is_directory(file, error)) {
    file /= "config.json";
    if (!fs::exists(file, error)) {
      map.fail("huggingface", "no config.json in '{}'", shown(named));
      return m;
    }
  }
  if (file.empty()) {
    map.fail(
        "huggingface",
        is_hub_id(named)
            ? hub_id_advice(named)
            : fmt::format("no file '{}', neither next to this file nor in the current directory",
                          shown(named)));
    return m;
  }
  const auto tree = read_text(file).and_then(
      [&](const std::string& text) { return parse_json(file.string(), text); });
  if (!tree) {
    map.found().add(tree.error());
    return m;
  }
  findings inner{file.string()};
  m = read_huggingface(inner, *tree);
  if (!inner.good()) map.found().add(inner.result().value());
  map.read("name", m.name);
  map.read_whole<std::uint32_t>("sequence", m.sequence, 1, admission::max_sequence);
  map.finish();
  return m;
}

}  // namespace

// One slash, two names, no suffix of a file: "org/model". Only for the advice in errors.
bool is_hub_id(const std::string& name) {
  const auto slash = name.find('/');
  if (slash == std::string::npos || name.find('/', slash + 1) != std::string::npos) return false;
  const auto suffix = fs::path{name}.extension();
  return is_name(name.substr(0, slash)) && is_name(name.substr(slash + 1)) && suffix != ".yaml" &&
         suffix != ".yml" && suffix != ".json";
}

std::string hub_id_advice(const std::string& name) {
  return fmt::format(
      "'{}' looks like a Hugging Face hub id; nothing is downloaded, so fetch the model's "
      "config.json and give its path (huggingface: PATH/config.json)",
      shown(name));
}

// Next to the file that names it, then in the current directory.
fs::path find_file(const fs::path& name, const fs::path& directory) {
  std::error_code error;
  if (fs::exists(directory / name, error)) return directory / name;
  if (fs::exists(name, error)) return name;
  return {};
}

// Relations between sizes, which no range of a single key can express.
void check_model(findings& found, const model& m, int line, const std::string& place) {
  if (!found.good()) return;
  if (const auto bad = admission::objection_to(m))
    found.add(line, inside(place, bad->key), bad->problem);
}

model read_model(findings& found, const value& v, const std::string& place,
                 const fs::path& directory) {
  map_reader map{found, v, place};
  if (v.has("huggingface")) return read_reference(map, directory);
  model m;
  map.read("name", m.name, need::required);
  const auto* named = map.find("family");
  const bool operators = named && admission::is_given_as_operators(named->text);
  read_keys(map, admission::model_keys(operators), m);
  if (operators) read_operators(map, m);
  map.finish();
  check_model(found, m, map.line("heads"), place);
  return m;
}

// A .json is taken for a config.json of Hugging Face: the house's own models are YAML.
expected<model> load_model(const fs::path& file) {
  return read_file(file, [&](findings& found, const value& tree) {
    return file.extension() == ".json" ? read_huggingface(found, tree)
                                       : read_model(found, tree, "", file.parent_path());
  });
}

}  // namespace troupe::formats
