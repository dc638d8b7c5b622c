#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "actors/training/planning/training_plan.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Why a training's timeline is not there; also one of its events, since it has not failed.
std::string unwritten_timeline(const std::string& file);

/// The tasks of all stages in one iteration and their WAN transfers, written for Perfetto. The
/// tasks come with the stages' reports, if the setup's `trace` asks for them.
class timeline {
 public:
  /// Keeps only the newest iteration.
  void add(const stage_report& r);

  /// Writes Chrome trace events: one process per datacenter and one track per GPU; and one track
  /// per link, which is a hop and direction, of a DP-cell or of a single pipeline. Spans of a track
  /// must not overlap (Perfetto would drop them): a transfer begins when the one before has ended.
  /// Times are relative to the iteration's begin. "otherData" has the job, schedule and layout.
  expected<void> write(const std::string& file, const cluster& c, const training_plan& plan,
                       const job_spec& job) const;

 private:
  std::uint64_t iteration_ = 0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, stage_report> reports_;  // pipeline, stage
};

}  // namespace troupe::actors
