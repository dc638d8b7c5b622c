#include "gpu/model/layer_index.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gpu/model/checkpoint.hpp"
#include "gpu/model/safetensors.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

/// In the order of layers. Which layers have no file, because they have nothing to save, only the
/// program knows; its stages have all said that they have saved.
std::vector<fs::path> files_of(const fs::path& directory, std::uint64_t lease) {
  const auto end = fmt::format("-lease-{}.safetensors", lease);
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{directory, error}) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("layer-") && name.ends_with(end)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

// The optimizer's tensors are left out, because readers of Hugging Face's form would take them for
// unknown weights.
expected<void> write_layer_index(const fs::path& directory, std::uint64_t lease,
                                 std::uint64_t iteration) {
  const auto files = files_of(directory, lease);
  if (files.empty())
    return refuse(reason::kind::unknown, "no layer of lease {} is in {}", lease,
                  directory.string());
  const auto opened = safetensors::open_all(files);
  if (!opened) return refuse(opened.error());
  json map = json::object();
  for (const auto& file : *opened) {
    if (file.iteration() != std::to_string(iteration))
      return refuse(reason::kind::malformed, "{} is not of iteration {}", file.file().string(),
                    iteration);
    for (const auto& tensor : file.all())
      if (!tensor.name.starts_with("optim/")) map[tensor.name] = file.file().filename().string();
  }
  const json index{{"metadata", {{"iteration", std::to_string(iteration)}, {"format", "pt"}}},
                   {"weight_map", std::move(map)}};
  return write_whole_file((directory / checkpoint_index).string(), index.dump(2) + "\n");
}

}  // namespace troupe::gpu
