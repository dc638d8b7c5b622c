#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/scratch.hpp"

namespace troupe::bench {

using test::scratch;

/// The one in the middle, or the mean of both; of one value at least.
double median(std::vector<double> values);

/// The standard output of a shell command, and its status as of wait(); -1: there was no shell.
struct printed {
  int status = -1;
  std::string text;
};
printed printed_by(const std::string& command);

/// The object that `troupe WORDS --json` prints in that directory; nothing if it fails, and then
/// its complaints are on standard error.
std::optional<nlohmann::json> try_troupe(const scratch& in, const std::string& words);

/// The same; this program ends with 2 if it fails.
nlohmann::json troupe_json(const scratch& in, const std::string& words);

}  // namespace troupe::bench
