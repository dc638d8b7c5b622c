#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "actors/training_plan.hpp"
#include "messages/reason.hpp"
#include "messages/stage.hpp"

namespace troupe::actors {

/// What every stage of one iteration did when, and what crossed the WAN: for Perfetto.
class timeline {
 public:
  /// Keeps the newest iteration that any stage tells of.
  void add(const stage_report& r);

  /// Chrome trace events: a process a datacentre, a track a GPU, and one for each hop and
  /// direction. Times begin with the iteration.
  expected<void> write(const std::string& file, const cluster& c, const training_plan& plan) const;

 private:
  std::uint64_t iteration_ = 0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, stage_report> reports_;  // pipeline, stage
};

}  // namespace troupe::actors
