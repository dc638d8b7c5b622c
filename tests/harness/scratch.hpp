#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace troupe::test {

/// A directory that is gone afterwards.
class scratch {
 public:
  scratch() {
    auto name = (std::filesystem::temp_directory_path() / "troupe-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error{"no temporary directory"};
    path_ = name;
  }
  ~scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;

  /// Writes a file there and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream{path_ / name, std::ios::binary} << text;
    return path(name);
  }
  std::string path() const { return path_.string(); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string operator/(const std::string& name) const { return path(name); }

 private:
  std::filesystem::path path_;
};

}  // namespace troupe::test
