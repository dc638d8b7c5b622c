#include "gpu/model/layer_index.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gpu/files/directory_entries.hpp"
#include "gpu/model/checkpoint_folders.hpp"
#include "gpu/model/safetensors.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"
#include "messages/base/whole_number.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

/// Those that workers write, in the order of layers; a file of another name may be anybody's. Which
/// layers have none, because they have nothing to save, only the program knows; its stages have all
/// said that they have saved.
expected<std::vector<fs::path>> files_of(const fs::path& directory, std::uint64_t lease) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto& entry : entries_of(directory, error))
    if (const auto of = saved_layer_of(entry.filename().string()); of && of->lease == lease)
      files.push_back(std::move(entry));
  if (error)
    return refuse(reason::kind::unavailable, "{} cannot be read: {}", directory.string(),
                  error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::optional<saved_layer> saved_layer_of(std::string_view name) {
  constexpr std::string_view begin = "layer-", middle = "-lease-", end = ".safetensors";
  constexpr std::size_t digits = 5;
  if (!name.starts_with(begin) || !name.ends_with(end)) return {};
  const auto layer = name.substr(begin.size(), digits);
  auto rest = name.substr(begin.size() + layer.size());
  rest.remove_suffix(std::min(rest.size(), end.size()));
  saved_layer found;
  const auto number = whole_number<std::uint32_t>(layer);
  if (layer.size() != digits || !number) return {};
  found.layer = *number;
  if (rest.empty()) return found;
  if (!rest.starts_with(middle)) return {};
  const auto lease = whole_number<std::uint64_t>(rest.substr(middle.size()));
  if (!lease) return {};
  found.lease = *lease;
  return found;
}

// The optimizer's tensors are left out, because readers of Hugging Face's form would take them for
// unknown weights.
expected<void> write_layer_index(const fs::path& directory, std::uint64_t lease,
                                 std::uint64_t iteration) {
  const auto found = files_of(directory, lease);
  if (!found) return refuse(found.error());
  const auto& files = *found;
  if (files.empty())
    return refuse(reason::kind::unknown, "no layer of lease {} is in {}", lease,
                  directory.string());
  const auto opened = safetensors::open_all(files);
  if (!opened) return refuse(opened.error());
  // In the files' order. A name that an ordered object has is sought among all before it.
  json::object_t map;
  std::set<std::string_view> known;
  for (const auto& file : *opened) {
    if (file.iteration() != std::to_string(iteration))
      return refuse(reason::kind::malformed, "{} is not of iteration {}", file.file().string(),
                    iteration);
    for (const auto& tensor : file.all()) {
      if (tensor.name.starts_with("optim/")) continue;
      if (!known.insert(tensor.name).second)
        return refuse(reason::kind::malformed, "{} has '{}', which another layer's file has too",
                      file.file().string(), tensor.name);
      map.emplace_back(tensor.name, file.file().filename().string());
    }
  }
  const json index{{"metadata", {{"iteration", std::to_string(iteration)}, {"format", "pt"}}},
                   {"weight_map", std::move(map)}};
  return write_whole_file((directory / checkpoint_index).string(), text_of(index));
}

}  // namespace troupe::gpu
