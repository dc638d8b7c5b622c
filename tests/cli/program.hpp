#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/scratch.hpp"

namespace troupe::test {

/// The outcome of a run of the program.
struct result {
  int status = -1;
  std::string out, err;

  nlohmann::json document() const { return nlohmann::json::parse(out); }
};

/// Runs `troupe` with these arguments in this directory, waits for its end. `input`: a file that is
/// its standard input; empty: this program's own.
result troupe(const std::vector<std::string>& arguments,
              const std::filesystem::path& directory = ".", const std::string& input = {});

/// The data of an HTML page that the program wrote. Checks that a browser needs nothing besides.
nlohmann::json data_of_page(const std::filesystem::path& file);

/// A file that is shipped under configs/.
std::string shipped(const std::string& name);

}  // namespace troupe::test
