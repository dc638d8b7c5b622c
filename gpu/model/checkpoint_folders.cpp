#include "gpu/model/checkpoint_folders.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "gpu/files/directory_entries.hpp"
#include "messages/base/whole_number.hpp"

namespace troupe::gpu {

namespace fs = std::filesystem;

namespace {

const std::string folder_prefix = "iteration-";

}  // namespace

fs::path checkpoint_directory(const fs::path& root, std::uint64_t iteration) {
  return root / fmt::format("{}{:06}", folder_prefix, iteration);
}

// Other entries of the directory are ignored; one without an index is listed as incomplete.
std::vector<listed_checkpoint> checkpoints_in(const fs::path& root) {
  std::vector<listed_checkpoint> all;
  std::error_code error;
  for (const auto& entry : entries_of(root, error)) {
    const auto name = entry.filename().string();
    if (!name.starts_with(folder_prefix)) continue;
    if (const auto n =
            whole_number<std::uint64_t>(std::string_view{name}.substr(folder_prefix.size())))
      all.push_back({*n, entry, fs::exists(entry / checkpoint_index, error)});
  }
  return all;
}

std::optional<found_checkpoint> newest_checkpoint(const fs::path& root) {
  std::optional<found_checkpoint> newest;
  for (auto& c : checkpoints_in(root))
    if (c.complete && (!newest || c.iteration > newest->iteration))
      newest = {c.iteration, std::move(c.directory)};
  return newest;
}

}  // namespace troupe::gpu
