#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/base/untrusted_file.hpp"
#include "messages/wire/stage.hpp"

// The learning curve of a training that has a checkpoint directory: `curve.csv` in it, one line per
// iteration, with a column for each value that a program's loss gives. The controller keeps only
// the newest iterations; the file has them all, and belongs to the checkpoint: an iteration is in
// it before a checkpoint of that iteration is complete.

namespace troupe::actors {

class curve_file {
 public:
  /// Without a directory: nothing is written.
  curve_file() = default;
  curve_file(std::string directory, lease_id lease)
      : directory_{std::move(directory)}, lease_{lease} {}

  /// The training resumes after that many iterations: drops the lines of later ones, which will be
  /// repeated. Returns those after iteration `known` that are kept, at most the newest thousand;
  /// `each` gets all that are kept. Fails (stale) if a newer lease has opened the directory.
  expected<std::vector<iteration_record>> resume(
      std::uint64_t iterations, std::uint64_t known,
      const std::function<void(const iteration_record&)>& each = {});

  void add(const iteration_record& i) {
    if (!directory_.empty()) unwritten_.push_back(i);
  }
  /// Appends what was added. Fails as resume does, once: after that nothing more is written.
  expected<void> write();

 private:
  expected<line_reader> open() const;
  expected<void> rewrite(line_reader& from,
                         const std::function<bool(const std::string&)>& keep) const;
  bool add_columns();

  std::string directory_;
  lease_id lease_ = 0;
  std::vector<std::string> columns_;  // of values
  std::vector<iteration_record> unwritten_;
};

}  // namespace troupe::actors
