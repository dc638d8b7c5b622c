#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/protocol/messenger.hpp"
#include "actors/training/bubble_lender.hpp"
#include "actors/training/clock_offset.hpp"
#include "actors/training/curve_file.hpp"
#include "actors/training/device_times.hpp"
#include "actors/training/interfaces.hpp"
#include "actors/training/timeline.hpp"
#include "actors/training/training_plan.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

struct trainer_options {
  shared_cluster cluster;
  lease_id lease = 0;
  job_id job = 0;
  train_order order;
  std::uint64_t incarnation = 0;  // larger than any earlier trainer's of this lease
  std::string backend;            // of jobs without `device`: sim, cpu, cuda
  actors::messenger messenger;
};

/// Runs one training job: plans the pipeline, sets up the stages, and collects their reports.
/// Stages run a window of iterations on their own; the trainer gives them the next window when all
/// have completed the iteration before.
///
/// States, with the members that tell them apart:
///
///   planning    prepare(): plans, opens the checkpoint directory, finds where to resume
///     -> setting up; -> ended, on an error
///   setting up  (ready_ < stages) sends every stage its setup, again on every tick
///     -> running, on the last stage's first report: sends group ids and the first window
///   running     (until_) adds up reports; repeats stage_run to stages that are silent
///     -> running, when all stages have completed the window: re-plans if measured times have
///        drifted, and sends the next window
///     -> stopping, on stop_training
///     -> ended, when the last iteration is complete, and saved if there is a checkpoint
///   stopping    (stopping_) every stage halts and names the iteration that it has begun; then all
///               go on to the furthest of these (last_) and save
///     -> ended, when that iteration is complete and saved
///   ended       (ended_) repeats its report until the controller has acknowledged all of it
///     -> lease_ended_: tells the node how the training ended
///
/// From any state but the last it ends when a stage reports an error or a limit of on_tick() is
/// exceeded: as `stopped` if another attempt may succeed, otherwise as `failed`.
///
/// Preconditions, checked by the node (stage_checks.hpp): reports come from a node of the lease.
/// They may be lost and repeated; a report counts only if it is the stage's next one.
class trainer_state {
 public:
  trainer_state() = default;
  void start(trainer_actor::pointer self, trainer_options o);
  void on_stage_report(const stage_report& r);
  void on_training_report_ack(const training_report_ack& h);
  void on_tick();
  void on_stop_training();

 private:
  struct means {
    stage_costs sum;
    std::uint32_t iterations = 0;
    void add(const stage_costs& k);
    stage_costs mean() const;
  };
  struct progress {
    bool ready = false;
    clock_offset clock;  // of its host
    std::uint64_t done = 0, saved = 0;
    std::deque<stage_costs> measured;  // in its latest iterations
    means window;                      // since the window began
    std::uint32_t max_in_flight = 0;
    std::vector<std::uint8_t> group_id;  // of its stage_report, as the next one
    reason fallback_reason;
    std::optional<std::uint64_t> halts_at;
  };
  struct pending {
    iteration_record record;
    std::uint32_t stages = 0;  // that have reported
  };

  static constexpr std::size_t max_report_iterations = 256;

  void prepare();
  void lend_bubbles();
  void report_resume();
  void send_setups();
  void distribute_group_ids();
  std::uint64_t iterations_alone() const;
  void run_window();
  void run(std::size_t i);
  void on_starting(const stage_report& r);
  void add_report(std::size_t i, const stage_report& r);
  void complete(const iteration_record& r);
  void update_checkpoint();
  void replan_if_drifted();
  void replan(const std::vector<stage_costs>& measured);
  void report_replan(const std::string& what, double kept_s);
  stage_costs slowest_of_stage(std::uint32_t stage) const;
  double tokens_per_s() const;
  void report();
  void write_curve();
  void record_halt(std::size_t i, std::uint64_t at);
  void end_if_over();
  void fail(part_report::state how, const std::string& why);
  void finish(part_report::state how, const std::string& why);
  void end_lease();
  void add_event(const std::string& sentence);
  std::uint64_t total() const { return o_.order.spec.iterations; }
  std::size_t index(const stage_name& n) const { return n.pipeline * plan_.shape.stages + n.stage; }

  trainer_actor::pointer self_ = nullptr;
  trainer_options o_;
  training_plan plan_;
  std::vector<progress> stages_;                      // pipeline * stages + stage
  std::vector<std::vector<std::uint8_t>> group_ids_;  // by stage; empty: hosts all-reduce
  std::map<std::uint64_t, pending> pending_;
  std::uint64_t first_ = 0, done_ = 0, until_ = 0, saved_ = 0;
  std::uint32_t ready_ = 0;
  std::uint64_t wan_bytes_ = 0;
  bubble_use bubbles_;  // of all reports
  // The time of the last report of any stage, of the last that showed progress, and of the last
  // that said that the stage is still being set up.
  double last_report_s_ = 0, last_progress_s_ = 0, last_starting_s_ = 0;
  bool starting_reported_ = false;
  double longest_s_ = 0, iterations_s_ = 0;  // of an iteration; the sum of all
  double last_end_s_ = 0;
  curve_file curve_;
  double wall_ahead_s_ = 0;  // of the monotonic clock; read once, so that durations stay exact
  bool replanned_ = false, retimed_ = false;
  bubble_lender lender_;
  bool stopping_ = false;
  std::optional<std::uint64_t> last_;
  std::optional<double> last_replan_event_s_;
  std::uint64_t unreported_replans_ = 0;
  timeline trace_;
  device_times times_;
  // What the controller has not acknowledged: iterations, events, and how many of these each report
  // that was sent had.
  std::vector<iteration_record> unacknowledged_;
  std::vector<std::string> unacknowledged_events_;
  std::deque<std::pair<std::uint64_t, std::pair<std::size_t, std::size_t>>> reports_in_flight_;
  std::uint64_t sequence_ = 0;
  part_report::state how_ = part_report::state::running;
  std::string why_;
  bool ended_ = false, lease_ended_ = false;
};

trainer_actor::behavior_type trainer(trainer_actor::stateful_pointer<trainer_state> self,
                                     trainer_options o);

}  // namespace troupe::actors
