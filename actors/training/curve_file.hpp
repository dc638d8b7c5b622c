#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "messages/reason.hpp"
#include "messages/stage.hpp"

// The whole curve of a training that has a checkpoint directory: `curve.csv` in it, a line an
// iteration. The controller remembers the newest iterations only.

namespace troupe::actors {

class curve_file {
 public:
  /// Of no directory: nothing is written.
  curve_file() = default;
  curve_file(std::string directory, lease_id lease)
      : directory_{std::move(directory)}, lease_{lease} {}

  /// The training goes on after so many iterations: the lines of later ones are dropped, since they
  /// are done again. Refuses (stale) where a newer lease has the directory.
  expected<void> resume(std::uint64_t iterations);

  void add(const iteration_record& i) {
    if (!directory_.empty()) unwritten_.push_back(i);
  }
  /// Appends what was added. Refuses as resume, once: after that nothing more is written.
  expected<void> write();

 private:
  std::string directory_;
  lease_id lease_ = 0;
  std::vector<iteration_record> unwritten_;
};

}  // namespace troupe::actors
