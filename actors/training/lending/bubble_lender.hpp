#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "actors/protocol/messenger.hpp"
#include "actors/training/planning/training_plan.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/prefill.hpp"

namespace troupe::actors {

/// When each stage's device computes from one barrier of the training to the next, if it is
/// executed as planned.
struct window_timetable {
  double iteration_s = 0;    // from an iteration's begin to the next one's
  std::uint64_t window = 0;  // iterations
  double window_s = 0;       // from the first step after a barrier to the next such one
  std::uint32_t shown = 0;   // iterations, see messages/wire/prefill.hpp
  std::vector<std::vector<busy_time>> busy;  // by pipeline * stages + stage
  std::vector<double> barrier_s;             // likewise: the stage's wait at a barrier
};
/// `window`: iterations between two barriers. `report_s`: by stage, how long its report takes to
/// the trainer, and that one's answer back.
window_timetable timetable_of(const training_plan& plan, const planners::measured_times& times,
                              std::uint64_t window, const std::vector<double>& report_s);

/// A trainer's offer of its devices' idle time: which stages get a guest, and the offers to the
/// gateways of their datacenters. Default constructed, it lends nothing. It plans; the stages lend
/// (stage_lending), and the prefill controllers of the gateways fill what is lent with prompts.
class bubble_lender {
 public:
  bubble_lender() = default;

  /// Forms prefill groups of the plan's stages, for prompts of up to longest_lent_prompt tokens, or
  /// as many as fit. Fails if the served model has no cache, or its layers do not fit the memory
  /// that is lent. `window`: iterations between two barriers, the first of which is before
  /// iteration `first`.
  static expected<bubble_lender> of(const cluster& c, const job_spec& job,
                                    const training_plan& plan, std::uint64_t trainer,
                                    address trainer_node, std::uint64_t window,
                                    std::uint64_t first);

  bool lends() const { return !offers_.empty(); }

  /// Writes each stage's guest and planned times into its setup.
  void add_guests(training_plan& plan) const;

  /// The plan, or how long its steps take, may have changed. True: the timetable has.
  bool update(const training_plan& plan, const planners::measured_times& times);

  /// The planned times of a stage, for its setup and its runs.
  stage_timetable times_of(std::size_t stage) const {
    return {times_.busy[stage], times_.iteration_s, times_.window, times_.barrier_s[stage]};
  }

  /// Sends the offers if the last ones are a heartbeat old, or at once if they have changed.
  void send(const messenger& m, double heartbeat_s);

  /// No bubble is lent any more; the gateways learn it with the next send(), and every later one.
  void withdraw();

 private:
  std::map<address, bubble_offer> offers_;  // by gateway
  window_timetable times_;
  std::uint64_t window_ = 0;
  std::vector<double> report_s_;  // by stage
  bool changed_ = false;
  double sent_s_ = 0;
};

}  // namespace troupe::actors
