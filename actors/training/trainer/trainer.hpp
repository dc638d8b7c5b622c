#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol/actor_state.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/training/device/interfaces.hpp"
#include "actors/training/lending/bubble_lender.hpp"
#include "actors/training/planning/training_plan.hpp"
#include "actors/training/trainer/controller_reports.hpp"
#include "actors/training/trainer/curve_file.hpp"
#include "actors/training/trainer/device_times.hpp"
#include "actors/training/trainer/evaluations.hpp"
#include "actors/training/trainer/healing.hpp"
#include "actors/training/trainer/ordered_sums.hpp"
#include "actors/training/trainer/stage_progress.hpp"
#include "actors/training/trainer/timeline.hpp"
#include "actors/training/trainer/training_watch.hpp"
#include "actors/training/trainer/worker_reports.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

struct trainer_options {
  shared_cluster cluster;
  lease_id lease = 0;
  job_id job = 0;
  train_order order;
  std::uint64_t incarnation = 0;  // larger than any earlier trainer's of this lease
  std::string backend;            // device kind of jobs without `device`
  actors::messenger messenger;
};

/// Runs one training job: plans the pipeline, sets up the stages, and collects their reports.
/// Stages run a window of iterations on their own; the trainer gives them the next window when all
/// have completed the iteration before.
///
/// States, with the members that distinguish them:
///
///   planning    prepare(): plans, opens the checkpoint directory, finds where to resume
///     -> setting up; -> ended, on an error
///   setting up  (not all_ready()) sends every stage its setup, again on every tick
///     -> running, on the last stage's first report: sends group ids and the first window
///   running     (until_) adds up reports; repeats stage_run to stages that are silent
///     -> running, when all stages have completed the window: re-plans if measured times have
///        drifted, and sends the next window
///     -> healing, when a stage is lost whose peers have its weights
///     -> stopping, on stop_training
///     -> ended, when the last iteration is complete, and saved if there is a checkpoint
///   healing     (healing_.is_changing()) asks the stages that are left where they are, and places
///   those
///               that are lost -> running, when all go on in the new view
///   stopping    (stopping_) every stage halts and names the iteration that it has begun; then all
///               go on to the furthest of these (last_) and save
///     -> ended, when that iteration is complete and saved
///   ended       (ended_) repeats its report until the controller has acknowledged all of it
///     -> lease_ended_: reports to the node how the training ended
///
/// From any state but the last it ends when a stage reports an error or a limit of training_watch
/// is exceeded: as `stopped` if another attempt may succeed, otherwise as `failed`.
///
/// The class has these states. The stages' progress, the limits of their silence, the lender of
/// their bubbles, and what the controller has not acknowledged are classes of their own.
///
/// Preconditions, checked by the node (stage_checks.hpp): reports come from a node of the lease.
/// They may be lost and repeated; a report counts only if it is the stage's next one.
class trainer_state {
 public:
  using interface = trainer_actor;
  static constexpr const char* actor_name = "trainer";

  void start(trainer_actor::pointer self, trainer_options o);
  void on(const inbound<stage_report>& m);
  void on(const inbound<training_report_ack>& m);
  void on(const tick&);
  void on(const stop_training&);

  /// It has thrown, and ends: so does the lease.
  void fail_work(const std::string& why);

 private:
  // Planning.
  void prepare();
  expected<void> find_checkpoint();
  void begin_healing();
  void report_changes(const std::filesystem::path& checkpoint);
  void lend_bubbles();
  void report_resume();

  // Messages to the stages.
  void send_setups();
  void begin_iterations();
  void run_window();
  void run(std::size_t i);
  void run_all();
  std::uint64_t iterations_alone() const;

  // Reports of stages.
  void on_ready(std::size_t i, const stage_report& r);
  void on_joined(std::size_t i, const stage_report& r);
  void report_fallbacks();
  void on_starting(const stage_report& r);
  std::string stage_text(const stage_name& s) const;  // its number and its node; for sentences
  void add_report(std::size_t i, const stage_report& r);
  void complete(const iteration_record& r);
  void on_files_written(std::size_t i, const stage_report& r);
  void update_checkpoint();
  void report_skipped(std::uint64_t before);
  void replan_if_drifted();
  void replan(const std::vector<stage_costs>& measured);
  void report_replan(const std::string& what, double kept_s);
  void record_halt(std::size_t i, std::uint64_t at);
  void end_at_target();

  // Views.
  bool heal(std::size_t i, const std::string& why);
  void on_stage_failed(std::size_t i, const stage_report& r);
  bool is_in_every_replica(std::size_t i, const reason& why);
  bool await_copy(std::size_t i, const stage_report& r);
  void on_copies(std::size_t i, const stage_report& r);
  void on_place(std::size_t i, const view_place& at, const std::vector<std::uint64_t>& copies);
  void begin_view();
  bool note_missing_reports(const std::vector<std::size_t>& lost);
  void add_missing_reports(const stage_report& of_peer);
  bool is_missing(const stage_report& r) const;
  void end_heal();
  void call_back();
  void on_standby(std::size_t i, const stage_report& r, address from);
  void rejoin();
  void ask_stages();
  bool is_from_its_host(std::size_t i, address from) const;
  void suspect_silent();

  // Reports to the controller, and the end.
  void check_limits();
  void report();
  void write_curve();
  void add_event(const std::string& sentence);
  void end_if_over();
  void fail(part_report::state how, const std::string& why, std::optional<end_word> word = {});
  void fail_by_file(const reason& why);
  void finish(part_report::state how, const std::string& why, std::optional<end_word> word = {});
  void end_lease();

  double now_s() const { return o_.messenger.now_s(); }
  double tokens_per_s() const;
  std::uint32_t datacenter_of_node(address a) const;
  static constexpr double longest_tick_s = 1;
  double tick_length_s() const;
  std::uint64_t total() const { return target_at_.value_or(o_.order.spec.iterations); }
  bool saves() const {
    return uses_real_devices(plan_) && !o_.order.spec.train->checkpoint.empty();
  }

  struct pending {
    iteration_record record;
    ordered_sums sums;
    std::uint32_t stages = 0;  // that have reported
  };

  trainer_actor::pointer self_ = nullptr;
  trainer_options o_;
  training_plan plan_;
  stage_progress stages_;
  training_watch watch_;
  controller_reports unreported_;
  bubble_lender lender_;
  worker_reports program_;
  curve_file curve_;
  timeline trace_;
  device_times times_;
  evaluations evaluations_;
  healing healing_;

  std::vector<double> loss_divisors_;         // by pipeline: all micro-batches over its own
  std::map<std::uint64_t, pending> pending_;  // by iteration
  // Iterations: resumed after, completed by all, that stages may run to, in the newest checkpoint.
  std::uint64_t first_ = 0, done_ = 0, until_ = 0, saved_ = 0;
  std::uint64_t wan_bytes_ = 0;
  bubble_use bubbles_;                       // of all reports
  double longest_s_ = 0, iterations_s_ = 0;  // of an iteration; the sum of all
  double last_end_s_ = 0;
  double wall_ahead_s_ = 0;  // of the monotonic clock; read once, so that durations stay exact
  bool joining_ = false;     // devices join their groups; no iteration has begun
  bool replanned_ = false, retimed_ = false;
  std::optional<double> last_replan_event_s_;
  std::uint64_t unreported_replans_ = 0;
  std::optional<double> last_skip_event_s_;
  std::uint64_t unreported_skips_ = 0;  // checkpoints
  bool stopping_ = false;
  std::optional<std::uint64_t> last_;       // iteration, of a training that stops
  std::optional<std::uint64_t> target_at_;  // after which its target is reached: then it is over
  bool ending_ = false;                     // stages have yet to learn that
  part_report::state how_ = part_report::state::running;
  std::string why_;
  std::optional<end_word> word_;  // none: what how_ implies
  bool ended_ = false, lease_ended_ = false;

  struct last_sign {
    double answered_s = 0, longest_s = 0;  // when, and the longest of its recent round trips
    std::optional<double> asked_s;         // when first since then
    stage_report report;                   // of its newest iteration, without tasks
  };
  std::vector<last_sign> signs_;       // by stage
  std::vector<stage_report> missing_;  // of lost stages, without what their peers know
  double ticked_s_ = 0;
  bool stop_healed_ = false;  // asked to stop while it healed
  // Workers that ended one after the other before this iteration was completed.
  std::uint32_t workers_lost_ = 0;
  std::uint64_t workers_lost_at_ = 0;
};

}  // namespace troupe::actors
