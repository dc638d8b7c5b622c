#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace troupe::test {

/// What a run of the program came to.
struct result {
  int status = -1;
  std::string out, err;

  nlohmann::json document() const { return nlohmann::json::parse(out); }
};

/// Runs `troupe` with these arguments in this directory, waits for its end.
result troupe(const std::vector<std::string>& arguments,
              const std::filesystem::path& directory = ".");

/// A file that is shipped under configs/.
std::string shipped(const std::string& name);

/// A directory for one test, gone with it.
class scratch {
 public:
  scratch();
  ~scratch();
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;

  /// Writes a file there and returns its path.
  std::string write(const std::string& name, const std::string& text) const;
  std::string path(const std::string& name = {}) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace troupe::test
