#pragma once

#include <string>
#include <vector>

#include "cli/output/output.hpp"
#include "messages/base/reason.hpp"

namespace troupe::cli {

/// A file of examples (JSONL), as a training of a model folder would read it: what `troupe check`
/// shows of it.
struct checked_examples {
  std::string summary;
  std::vector<std::string> warnings;
  json figures;  // an object
};

/// Files of `troupe check` for examples; an empty one was not named.
struct example_files {
  std::string model;  // a folder
  std::string job;    // whose `train:` says how examples become rows
  std::string rows;   // to be written
};
expected<checked_examples> check_examples(const std::string& file, const example_files& with);

}  // namespace troupe::cli
