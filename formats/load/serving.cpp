#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include "formats/load/key_reader.hpp"
#include "formats/load/load.hpp"
#include "formats/load/part_readers.hpp"
#include "messages/admission/admission.hpp"
#include "messages/base/absolute_path.hpp"
#include "messages/domain/model_files.hpp"

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

// A served model is a folder in Hugging Face's layout. Its shape and the hash of its files are read
// when the job is read, on the submitting machine: the controller plans with the shape, and every
// decoder and guest compares the hash with its own copy.
bool is_model_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "config.json", error);
}

/// Names of the models that ship with their files.
std::vector<std::string> shipped_folders() {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at{configs_directory() / "models", error}, end; !error && at != end;
       at.increment(error))
    if (is_model_folder(at->path())) names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Says why `named`, which was resolved to `path`, is no model's folder.
void complain(map_reader& map, const std::string& named, const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return map.fail("model", "no config.json in '{}'", shown(named));
  if (fs::exists(path, error))
    return map.fail("model",
                    "'{}' is a file, expected a model's folder (config.json, "
                    "*.safetensors, tokenizer)",
                    shown(named));
  const auto near = nearest_name(fs::path{named}.filename().string(), shipped_folders());
  const auto advice =
      near ? fmt::format("; did you mean the shipped '{}'?", *near)
      : is_hub_id(named)
          ? "; if it is a Hugging Face hub id, fetch the model's folder and give its "
            "path: nothing is downloaded"
          : "";
  map.fail("model", "no folder '{}', neither next to this file nor in the current directory{}",
           shown(named), advice);
}

/// `model`, `name` and `random_weights` of a map.
// A simulated training needs a shape and no weights: then a model's file is enough.
served_model_files read_files(map_reader& map, bool needs_folder, const fs::path& directory) {
  served_model_files m;
  std::string named;
  if (!map.read("model", named, need::required)) return m;
  fs::path path{found_path(named, directory)};
  std::error_code error;
  if (const auto shipped = configs_directory() / "models" / named;
      !fs::exists(path, error) && is_name(named) && is_model_folder(shipped))
    path = fs::path{absolute_path(shipped).value_or(shipped)}.lexically_normal();
  const bool shape_only = !needs_folder && fs::is_regular_file(path, error);
  if (!shape_only && (named.empty() || !is_model_folder(path))) {
    complain(map, named, path);
    return m;
  }
  const auto shape = load_model(shape_only ? path : path / "config.json");
  if (!shape) {
    map.found().add(shape.error());
    return m;
  }
  m.shape = *shape;
  if (!shape_only) m.folder = path.string();
  // A folder's name may end with a slash.
  const auto last = path.has_filename() ? path.filename() : path.parent_path().filename();
  m.name = shape_only ? path.stem().string() : last.string();
  map.read_name("name", m.name);
  std::uint64_t seed = 0;
  if (map.read_whole<std::uint64_t>("random_weights", seed, 0, 1'000'000'000'000))
    m.random_weights = seed;
  if (!m.folder.empty()) {
    const auto hash = hash_of_model_files(m);
    if (hash) m.hash = *hash;
    if (!hash && map.found().good()) map.fail("model", hash.error().text);
  }
  return m;
}

/// Reports the controller's objection at its line.
void check(map_reader& map, const std::optional<admission::objection>& bad) {
  if (bad && map.found().good()) map.fail(bad->key, bad->problem);
}

/// Adapters of PEFT's format, each a map of `name` and `folder` or a text NAME=FOLDER.
std::vector<served_adapter> read_adapters(map_reader& serve, const fs::path& directory) {
  std::vector<served_adapter> all;
  const auto* list = serve.list("adapters");
  for (std::size_t i = 0; list && i < list->items.size() && serve.found().good(); ++i) {
    const auto& item = list->items[i];
    served_adapter a;
    if (item.what == value::kind::scalar) {
      const auto equals = item.text.find('=');
      if (equals == std::string::npos) {
        serve.fail("adapters", "found '{}', expected NAME=FOLDER, or a map of name and folder",
                   shown(item.text));
        return {};
      }
      a.name = item.text.substr(0, equals);
      a.folder = item.text.substr(equals + 1);
    } else {
      map_reader map{serve.found(), item, inside(inside(serve.place(), "adapters"), i)};
      map.read("name", a.name, need::required);
      map.read("folder", a.folder, need::required);
      map.finish();
      if (!serve.found().good()) return {};
    }
    a.folder = found_path(a.folder, directory);
    const auto hash = hash_of_adapter_files(a.folder);
    if (hash)
      a.hash = *hash;
    else
      serve.fail("adapters", "the adapter '{}': {}", shown(a.name), hash.error().text);
    all.push_back(std::move(a));
  }
  return all;
}

// `most_running` alone raises the limit of all sequences: a user who wants 512 running does not
// want 256 in total.
serving read_decoder(map_reader& map, const value& v, const fs::path& directory) {
  static const std::vector<std::string> prefills{"bubbles", "decoder"};
  static const std::vector<std::string> fallbacks{"decoder", "none"};
  using namespace admission;
  map_reader serve{map.found(), v, "serve"};
  serving s;
  s.model = read_files(serve, true, directory);
  read_keys(serve, serve_keys(), s);
  if (!serve.find("max_sequences")) s.max_sequences = std::max(s.max_sequences, s.max_running);
  std::string prefill = "bubbles", fallback = "decoder";
  serve.read_choice("prefill", prefill, prefills);
  serve.read_choice("fallback", fallback, fallbacks);
  s.bubbles = prefill == "bubbles";
  s.fallback = fallback == "decoder";
  if (auto adapters = read_adapters(serve, directory); !adapters.empty())
    s.adapters = std::move(adapters);
  serve.finish();
  if (map.found().good()) check(serve, objection_to(s));
  return s;
}

}  // namespace

void read_serving(map_reader& map, job_spec& job, const fs::path& directory) {
  const auto* v = map.find("serve");
  if (!v) return;
  // It would be an unknown key, with a suggestion that is of no use.
  const auto refuse_key = [&](std::string_view key) {
    if (map.find(key))
      map.fail(key, key == "model"
                        ? "a job that serves a model names it inside serve"
                        : "not for a job that serves a model, which runs until it is cancelled");
  };
  for (const auto& k : admission::job_keys())
    if (!k.use.served) refuse_key(k.name);
  for (const auto& k : admission::memory_keys()) refuse_key(k.name);
  if (!map.found().good()) return;
  job.serve = read_decoder(map, *v, directory);
  job.model = job.serve->model.shape;
  job.model.name = job.serve->model.name;
}

// The same model as in `serve`, by name and files: guests compute for its decoders.
bubble_lending read_bubbles(findings& found, const value& v, bool needs_folder,
                            const fs::path& directory) {
  using namespace admission;
  map_reader lent{found, v, "pipeline.bubbles"};
  bubble_lending b;
  b.model = read_files(lent, needs_folder, directory);
  read_keys(lent, bubble_keys(), b);
  lent.finish();
  if (found.good()) check(lent, objection_to(b, needs_folder));
  return b;
}

}  // namespace troupe::formats
