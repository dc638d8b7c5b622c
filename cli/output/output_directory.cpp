#include "cli/output/output_directory.hpp"

#include <filesystem>

#include <fmt/format.h>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

// The directory is emptied before each run, so it must be one that this program has made: a
// mistyped --out must not delete a user's files.
constexpr const char* mark = ".made-by-troupe";

}  // namespace

expected<output_directory> output_directory::claim(const std::string& path) {
  const fs::path directory{path};
  std::error_code failed;
  fs::create_directories(directory, failed);
  const bool empty = !failed && fs::is_empty(directory, failed);
  if (failed)
    return refuse(reason::kind::invalid, fmt::format("{}: cannot be used as output directory: {}",
                                                     path, failed.message()));
  if (!empty && !fs::is_regular_file(directory / mark, failed))
    return refuse(reason::kind::refused,
                  fmt::format("{}: contains files that Troupe did not write (it has no {}), so it "
                              "is not emptied; use another directory, or remove it",
                              path, mark));
  // The mark is the lock file too: a second run would empty the directory under the first.
  auto lock =
      runtime::file_lock::take((directory / mark).string(), fmt::format("the directory {}", path));
  if (!lock) return refuse(lock.error());
  for (const auto& entry : fs::directory_iterator{directory, failed})
    if (entry.path().filename() != mark) fs::remove_all(entry.path(), failed);
  if (failed)
    return refuse(reason::kind::unavailable,
                  fmt::format("{}: cannot be emptied: {}", path, failed.message()));
  return output_directory{std::move(*lock)};
}

}  // namespace troupe::cli
