#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "actors/protocol/messenger.hpp"
#include "actors/training/training_plan.hpp"
#include "messages/cluster.hpp"
#include "messages/job.hpp"
#include "messages/prefill.hpp"

namespace troupe::actors {

/// When each stage's device computes in one iteration of many that follow each other without a
/// barrier, if it is executed as planned; by pipeline * stages + stage. Before a step it may be
/// called busy too early: no wait is longer than the same one in any iteration, also in those after
/// a barrier, so that a guest that relies on it delays none.
struct iteration_timetable {
  double iteration_s = 0;
  std::vector<std::vector<busy_time>> busy;
};
iteration_timetable timetable_of(const training_plan& plan, const planners::measured_times& times);

/// A trainer's offer of its devices' idle time: which stages get a guest, and what the gateways of
/// their datacenters are told. Default constructed, it lends nothing.
class bubble_lender {
 public:
  bubble_lender() = default;

  /// Forms prefill groups of the plan's stages, for prompts of up to 8,192 tokens, or as many as
  /// fit. Fails if the served model has no cache, or its layers do not fit the memory that is lent.
  static expected<bubble_lender> of(const cluster& c, const job_spec& job,
                                    const training_plan& plan, std::uint64_t trainer);

  bool lends() const { return !offers_.empty(); }

  /// Writes each stage's guest and planned times into its setup.
  void add_guests(training_plan& plan) const;

  /// The plan, or how long its steps take, may have changed. True: the timetable has.
  bool update(const training_plan& plan, const planners::measured_times& times);

  /// The planned times of a stage, for its setup and its runs.
  stage_timetable times_of(std::size_t stage) const {
    return {times_.busy[stage], times_.iteration_s};
  }

  /// Sends the offers if the last ones are a heartbeat old, or at once if they have changed.
  void send(const messenger& m, double heartbeat_s);

  /// No bubble is lent any more; says so once at least, and again with every send().
  void withdraw();

 private:
  std::map<address, bubble_offer> offers_;  // by gateway
  iteration_timetable times_;
  bool changed_ = false;
  double sent_s_ = 0;
};

}  // namespace troupe::actors
