#include "gpu/model/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "gpu/files/directory_entries.hpp"
#include "gpu/model/finite.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"
#include "messages/base/whole_number.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr std::size_t max_index_bytes = 64u << 20;
const std::string first_moment = "adam.m/", second_moment = "adam.v/";

// The index records the model, so that an export needs no job file.
json to_json(const troupe::model& m) {
  return {{"name", m.name},         {"family", m.family},         {"hidden", m.hidden},
          {"layers", m.layers},     {"heads", m.heads},           {"intermediate", m.intermediate},
          {"sequence", m.sequence}, {"vocabulary", m.vocabulary}, {"tied_head", m.tied_head}};
}

/// A training cannot go on from other values.
expected<void> check_finite(const saved_values& all, std::uint64_t iteration) {
  for (const auto& [prefix, values] :
       {std::pair{std::string{}, all.weights}, std::pair{first_moment, all.first_moments},
        std::pair{second_moment, all.second_moments}})
    if (const auto wrong = not_finite(values); !wrong.empty())
      return refuse(reason::kind::invalid, "iteration {}: '{}{}': {}; no checkpoint is written",
                    iteration, prefix, all.what->name, wrong);
  return {};
}

}  // namespace

// An index names its files, so a folder may also hold files of other leases and of crashed writers,
// which are then not read. Only plain file names are accepted: a checkpoint from elsewhere must not
// lead to files outside of its folder. Without an index, as in many published models, all files
// count.
expected<std::vector<fs::path>> checkpoint_files(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector{path};
  std::set<fs::path> files;
  if (fs::exists(path / checkpoint_index, error)) {
    const auto read = read_python_json_file(path / checkpoint_index, max_index_bytes);
    if (!read) return refuse(read.error());
    const auto& index = *read;
    if (!index.contains("weight_map") || !index["weight_map"].is_object())
      return refuse(reason::kind::malformed, "{} has no weight_map",
                    (path / checkpoint_index).string());
    for (const auto& [name, file] : index["weight_map"].items()) {
      const auto plain = file.is_string() ? fs::path{file.get<std::string>()} : fs::path{};
      if (plain.empty() || plain != plain.filename())
        return refuse(reason::kind::malformed, "{} names no file next to it for '{}'",
                      (path / checkpoint_index).string(), name);
      files.insert(path / plain);
    }
  } else {
    for (auto& entry : entries_of(path, error))
      if (entry.extension() == ".safetensors" && files.size() <= max_safetensors_files)
        files.insert(std::move(entry));
    if (error)
      return refuse(reason::kind::unavailable, "{} cannot be read: {}", path.string(),
                    error.message());
  }
  if (files.empty()) return refuse(reason::kind::unknown, "no checkpoint in {}", path.string());
  return std::vector<fs::path>{files.begin(), files.end()};
}

// The lease is part of the name: a training that has lost its lease but still writes cannot
// overwrite a file of its successor.
std::string stage_file(const stage_spec& s) {
  const auto layer = [](std::uint32_t sublayer) {
    return fmt::format("{:05}{}", sublayer / 2, sublayer % 2 == 0 ? "" : ".5");
  };
  return fmt::format("layers-{}-{}{}.safetensors", layer(s.first_sublayer),
                     layer(s.first_sublayer + s.sublayers),
                     s.lease > 0 ? fmt::format("-lease-{}", s.lease) : std::string{});
}

// Values are checked before the directory exists, so a diverged training leaves no empty
// checkpoint.
expected<void> save_stage(const fs::path& directory, const stage_spec& s, std::uint64_t iteration,
                          const std::vector<saved_values>& all) {
  for (const auto& one : all)
    if (auto ok = check_finite(one, iteration); !ok) return ok;
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    return refuse(reason::kind::unavailable, "{} cannot be created: {}", directory.string(),
                  error.message());
  std::vector<tensor_to_store> tensors;
  for (const auto& one : all) {
    tensors.push_back({one.what->name, one.what->shape(), one.weights});
    tensors.push_back({first_moment + one.what->name, one.what->shape(), one.first_moments});
    tensors.push_back({second_moment + one.what->name, one.what->shape(), one.second_moments});
  }
  return write_safetensors(directory / stage_file(s), tensors,
                           {{"format", "pt"}, {"iteration", std::to_string(iteration)}});
}

// The index is written last, and by renaming a complete file, so its existence means that the
// checkpoint is complete. The stages' files are opened again before: a stage may have written a
// file of another iteration, or not all of its parameters. Moments are left out of the index,
// because readers of Hugging Face's format would take them for unknown weights.
expected<void> write_index(const fs::path& directory, const troupe::model& m,
                           std::uint64_t iteration, const std::vector<std::string>& files) {
  json::object_t map;
  std::set<std::string_view> known;
  std::uint64_t bytes = 0;
  std::vector<fs::path> paths;
  for (const auto& name : files) paths.push_back(directory / name);
  const auto opened = safetensors::open_all(paths);
  if (!opened) return refuse(opened.error());
  for (const auto& file : *opened) {
    if (file.iteration() != std::to_string(iteration))
      return refuse(reason::kind::malformed, "{} is not of iteration {}", file.file().string(),
                    iteration);
    for (const auto& [tensor, about] : file.tensors()) {
      if (tensor.starts_with(first_moment) || tensor.starts_with(second_moment)) continue;
      if (known.insert(tensor).second) map.emplace_back(tensor, file.file().filename().string());
      bytes += about.end - about.begin;
    }
  }
  for (const auto& p : parameters_of(m))
    if (!known.contains(p.name))
      return refuse(reason::kind::malformed, "no stage saved '{}' in {}", p.name,
                    directory.string());
  json index;
  index["metadata"] = {{"total_size", bytes}, {"iteration", iteration}, {"model", to_json(m)}};
  index["weight_map"] = std::move(map);
  return write_whole_file((directory / checkpoint_index).string(), text_of(index));
}

namespace {

// Opening checks the headers of all files; shapes are compared with the model's parameters.
expected<void> check_sound(const fs::path& directory, const std::vector<parameter>& all) {
  const auto c = checkpoint::open(directory);
  if (!c) return refuse(c.error());
  for (const auto& p : all)
    if (auto ok = c->check(p); !ok) return ok;
  return {};
}

}  // namespace

// Newest first; a damaged checkpoint is reported and an older one used, as losing some iterations
// is better than losing the job. If none is sound, the newest one's error is returned: starting
// anew silently would discard a training. Headers and shapes are checked here, values when they are
// read.
expected<sound_checkpoint> newest_sound_checkpoint(const fs::path& root, const troupe::model& m) {
  auto all = checkpoints_in(root);
  std::erase_if(all, [](const auto& c) { return !c.complete; });
  std::ranges::sort(all, std::ranges::greater{}, &listed_checkpoint::iteration);
  sound_checkpoint found;
  if (all.empty()) return found;
  // A program's are known to its workers alone.
  const auto parameters = has_program_layers(m) ? std::vector<parameter>{} : parameters_of(m);
  std::optional<reason> first;
  for (const auto& c : all) {
    const auto ok = check_sound(c.directory, parameters);
    if (ok) {
      found.iteration = c.iteration;
      return found;
    }
    found.damaged.push_back(fmt::format("the checkpoint after iteration {} is not used: {}",
                                        c.iteration, ok.error().text));
    if (!first) first = ok.error();
  }
  return refuse(*first);
}

// The lock is taken before any file is opened, so that retention cannot remove the files in
// between. Files without an iteration, such as published models, count as iteration 0.
expected<checkpoint> checkpoint::open(const fs::path& path) {
  auto lock = reading_lock::of(path);
  if (!lock) return refuse(lock.error());
  const auto files = checkpoint_files(path);
  if (!files) return refuse(files.error());
  checkpoint c;
  c.path_ = path;
  c.lock_ = std::move(*lock);
  auto opened = safetensors::open_all(*files);
  if (!opened) return refuse(opened.error());
  c.files_ = std::move(*opened);
  std::optional<std::string> iteration_text;
  for (const auto& file : c.files_) {
    const auto word = file.iteration().value_or("0");
    if (iteration_text.value_or(word) != word)
      return refuse(reason::kind::malformed,
                    "the files in {} are of different iterations: {:.32} and {:.32}", path.string(),
                    *iteration_text, word);
    iteration_text = word;
  }
  const auto n = whole_number<std::uint64_t>(iteration_text.value_or("0"));
  if (!n)
    return refuse(reason::kind::malformed, "{} is of iteration '{:.32}'", path.string(),
                  *iteration_text);
  c.iteration_ = *n;
  return c;
}

namespace {

// A training with shorter sequences may start from a model with more positions: it uses the first
// ones.
expected<void> check_shape(const found_tensor& from, const parameter& p) {
  auto shape = from.tensor->shape;
  const auto wanted = p.shape();
  if (p.name == "wpe.weight" && shape.size() == 2 && shape[0] > wanted[0]) shape[0] = wanted[0];
  if (shape == wanted) return {};
  return refuse(reason::kind::invalid, "'{}' is {} in {}, but {} in the model", from.tensor->name,
                shape_text(from.tensor->shape), from.file->file().string(), shape_text(wanted));
}

expected<void> read_one(const found_tensor& from, const parameter& p, std::span<float> out) {
  if (auto ok = check_shape(from, p); !ok) return ok;
  return from.file->read(*from.tensor, out);
}

}  // namespace

// Published GPT-2 files have the names with or without a prefix.
expected<found_tensor> checkpoint::weights_of(const parameter& p) const {
  auto from = find_tensor(files_, p.name);
  if (!from.tensor) from = find_tensor(files_, "transformer." + p.name);
  if (!from.tensor)
    return refuse(reason::kind::unknown, "'{}' is not in {}", p.name, path_.string());
  return from;
}

expected<void> checkpoint::check(const parameter& p) const {
  const auto from = weights_of(p);
  if (!from) return refuse(from.error());
  if (auto ok = check_shape(*from, p); !ok) return ok;
  for (const auto& prefix : {first_moment, second_moment})
    if (const auto moment = find_tensor(files_, prefix + p.name); moment.tensor)
      if (auto ok = check_shape(moment, p); !ok) return ok;
  return {};
}

// Published weights have no moments: a training from them starts with zeros.
expected<void> checkpoint::read(const parameter& p, std::span<float> weights,
                                std::span<float> first_moments,
                                std::span<float> second_moments) const {
  const auto from = weights_of(p);
  if (!from) return refuse(from.error());
  if (auto ok = read_one(*from, p, weights); !ok) return ok;
  for (const auto& [prefix, out] :
       {std::pair{&first_moment, first_moments}, std::pair{&second_moment, second_moments}}) {
    const auto moment = find_tensor(files_, *prefix + p.name);
    if (!moment.tensor) {
      std::fill(out.begin(), out.end(), 0.0f);
    } else if (auto ok = read_one(moment, p, out); !ok) {
      return ok;
    }
  }
  return {};
}

// The tied matrix is stored once, by the stage with the embedding.
expected<void> save_values(const fs::path& directory, const stage_spec& s, std::uint64_t iteration,
                           const stage_values& values, bool whole) {
  std::vector<saved_values> all;
  for (const auto& p : values.parameters) {
    if (p.tied && !s.has_embedding && !whole) continue;
    const auto at = values.position(p), n = p.values();
    all.push_back({&p, values.weights.subspan(at, n), values.first_moments.subspan(at, n),
                   values.second_moments.subspan(at, n)});
  }
  return save_stage(directory, s, iteration, all);
}

// Files hold whole parameters. Those of which this device has a slice are read into a temporary of
// the whole size, one parameter at a time, which bounds the host's memory.
expected<std::uint64_t> load_values(const fs::path& path, const stage_spec& s,
                                    const stage_values& values) {
  const auto from = checkpoint::open(path);
  if (!from) return refuse(from.error());
  auto whole = s;
  whole.shard = 0, whole.shards = 1;
  const auto in_files = parameters_of(whole);
  for (std::size_t i = 0; i < in_files.size(); ++i) {
    const auto& p = values.parameters[i];
    const auto at = values.position(p), n = p.values();
    const std::array to{values.weights.subspan(at, n), values.first_moments.subspan(at, n),
                        values.second_moments.subspan(at, n)};
    auto read = to;
    std::array<std::vector<float>, 3> all;  // of which this device has a slice
    for (std::size_t j = 0; p.runs > 0 && j < 3; ++j) {
      all[j].resize(in_files[i].values());
      read[j] = all[j];
    }
    if (auto ok = from->read(in_files[i], read[0], read[1], read[2]); !ok)
      return refuse(ok.error());
    for (std::size_t j = 0; p.runs > 0 && j < 3; ++j) take_share(p, all[j], to[j]);
  }
  return from->iteration();
}

expected<void> export_weights(const fs::path& checkpoint_path, const troupe::model& m,
                              const fs::path& file) {
  const auto from = checkpoint::open(checkpoint_path);
  if (!from) return refuse(from.error());
  const auto parameters = parameters_of(m);
  const auto saved_name = [](const std::string& name) {
    return name.starts_with("lm_head.") ? name : "transformer." + name;
  };
  std::vector<std::vector<float>> values;
  std::vector<tensor_to_store> tensors;
  for (const auto& p : parameters) {
    auto& v = values.emplace_back(p.values());
    std::vector<float> moments(p.values());
    if (auto ok = from->read(p, v, moments, moments); !ok) return ok;
    tensors.push_back({saved_name(p.name), p.shape(), v});
  }
  return write_safetensors(file, tensors, {{"format", "pt"}});
}

}  // namespace troupe::gpu
