#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace troupe::bench {

/// The results of all parts in one file of JSON, which is replaced as a whole after each row: a
/// measurement that is killed leaves the rows that it had.
class result_file {
 public:
  /// Empty: no file.
  explicit result_file(std::string path) : path_{std::move(path)} {}

  /// The part's result so far, with "complete". Throws std::runtime_error if it cannot be written.
  void put(const std::string& part, nlohmann::json result, bool complete);

 private:
  std::string path_;
  nlohmann::json all_ = nlohmann::json::object();
};

}  // namespace troupe::bench
