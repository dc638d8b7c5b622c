#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "actors/training/training_plan.hpp"
#include "messages/job.hpp"
#include "messages/reason.hpp"
#include "messages/stage.hpp"

namespace troupe::actors {

/// What every stage of one iteration did when, and what crossed the WAN: for Perfetto.
class timeline {
 public:
  /// Keeps the newest iteration that any stage tells of.
  void add(const stage_report& r);

  /// Chrome trace events: a process a datacenter, a track a GPU; and a track for each link that is
  /// shared in time, which is a hop, direction and DP-cell, or a pipeline's own share of it.
  /// Nothing overlaps on a track (Perfetto would drop it): a transfer begins when the one before is
  /// there. Times begin with the iteration. "otherData" says what was trained how.
  expected<void> write(const std::string& file, const cluster& c, const training_plan& plan,
                       const job_spec& job) const;

 private:
  std::uint64_t iteration_ = 0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, stage_report> reports_;  // pipeline, stage
};

}  // namespace troupe::actors
