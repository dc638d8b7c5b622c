#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "harness/source_dir.hpp"
#include "messages/base/reason.hpp"

namespace troupe::test {

/// The folder of files that ship with the program.
inline const std::filesystem::path shipped =
    std::filesystem::path{troupe::test::source_dir()} / "configs";

/// The value, or a failure of the test with the reason's sentence.
template <class T>
T loaded(expected<T> result) {
  if (!result) FAIL(result.error().text);
  return std::move(*result);
}

/// A folder of this process's own, removed at its end.
inline const std::filesystem::path& temporary_folder() {
  struct folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("troupe-test-" + std::to_string(::getpid()));
    folder() { std::filesystem::create_directories(path); }
    ~folder() {
      std::error_code error;
      std::filesystem::remove_all(path, error);
    }
  };
  static const folder one;
  return one.path;
}

/// A path in it that does not exist.
inline std::filesystem::path fresh_path(const std::string& name) {
  const auto path = temporary_folder() / name;
  std::filesystem::remove_all(path);
  return path;
}

/// A file in it with that text.
inline std::filesystem::path temporary(const std::string& name, const std::string& text) {
  const auto file = temporary_folder() / name;
  std::filesystem::create_directories(file.parent_path());
  std::filesystem::remove(file);  // some file systems write a truncated file out at once
  std::ofstream{file, std::ios::binary} << text;
  return file;
}

/// The shared folder of a data set, `../shared/data/NAME` of a checkout or of a folder above it;
/// nothing where this machine has none.
inline std::optional<std::string> shared_data(const std::string& name) {
  namespace fs = std::filesystem;
  for (auto at = fs::path{source_dir()}; at.has_relative_path(); at = at.parent_path())
    if (const auto found = at / "shared/data" / name; fs::exists(found)) return found.string();
  return {};
}

}  // namespace troupe::test
