#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/training/planning/training_plan.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The tasks of a training's devices, as its stages report them, for the trainer's own reports.
class device_times {
 public:
  /// Tasks of one timeline; in a longer one stages have no tasks.
  static constexpr std::size_t max_tasks = 10'000;

  /// A stage's report of an iteration, with tasks; at most one of each stage and iteration. Tasks
  /// of kinds that this version does not know are left out.
  void add(const stage_report& r);
  /// All stages have reported this iteration; on the trainer's clock.
  void complete(std::uint64_t iteration, double begin_s, double end_s);

  /// Nothing before the first iteration is complete. Stages are in the plan's order; those that
  /// have reported no tasks are missing.
  std::optional<iteration_timeline> report(const training_plan& plan) const;

 private:
  using stage_key = std::pair<std::uint32_t, std::uint32_t>;  // pipeline, stage
  using tasks = std::map<stage_key, std::vector<timed_task>>;

  std::map<std::uint64_t, tasks> incomplete_;  // by iteration
  std::map<stage_key, std::vector<double>> busy_s_;
  tasks newest_;
  std::uint64_t iteration_ = 0;  // of `newest_`
  double length_s_ = 0;
};

}  // namespace troupe::actors
