#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/training/stage/evaluation_share.hpp"
#include "actors/training/stage/gradient_exchange.hpp"
#include "actors/training/stage/stage_times.hpp"
#include "gpu/device/stage_device.hpp"
#include "messages/domain/stage_name.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Everything that a stage holds for one training: which iterations it may run and has completed,
/// its checkpoints, its gradients and their all-reduce, its loss, and the report of the present
/// iteration. Its parameters are the device's, under the same name.
///
/// It is one object because it may become one of several: a stage that trains several adapters of
/// one base model executes one order and passes one stream of activations, but each adapter has its
/// own iterations, gradients, checkpoints and curve. What the stage has once (device, order,
/// inputs, lost tensors, lending) is not here.
class stage_training {
 public:
  /// `s` is the stage's own, and outlives it.
  void begin(const stage_setup& s);

  /// It goes back to the setup's first iteration, which it has done before. What was saved of later
  /// ones does not count.
  void restore(const stage_setup& s);

  const stage_name& name() const { return setup_->name; }

  // -- iterations

  std::uint64_t iteration() const { return iteration_; }  // completed
  std::uint64_t until() const { return until_; }          // the last that it may run
  std::uint64_t saved() const { return saved_; }
  bool waits_for_trainer() const { return iteration_ >= until_; }
  bool has_begun() const { return until_ > setup_->first_iteration; }
  bool is_over() const { return iteration_ == setup_->iterations; }
  /// The trainer names the last iteration of the next window.
  void run_until(std::uint64_t until);
  /// The present iteration, counted from the last barrier: from where the trainer gave more
  /// iterations. A wait for the trainer belongs to the window that follows.
  std::uint64_t iteration_of_window() const;

  /// It completes the iteration that has begun (`under_way`) and begins no other.
  void halt(bool under_way);
  /// All stages go on to this iteration, which is the last, and save it.
  void halt_after(std::uint64_t last) { until_ = save_at_ = last; }
  bool halted() const { return halted_; }

  // -- the present iteration

  void begin_iteration();
  /// It begins again, without the sums that were received in it.
  void restart_iteration();
  void begin_forward();
  void end_forward(const gpu::operations::forward::result& r);
  void end_backward() { --in_flight_; }
  /// A held-out micro-batch: its sums are among the iteration's values.
  void end_evaluation(const gpu::operations::forward::result& r);
  /// Do held-out micro-batches follow the update of this iteration?
  bool is_evaluation_due() const;
  std::uint32_t held_out_microbatches() const { return evaluations_.microbatches; }
  /// A task of this kind took so long. `reduce`: the copy of the gradients to the host.
  void add_time(task_kind what, double s) { times_.add(what, s); }
  void add_norms_time(double s) { times_.add_norms(s); }
  /// The size of a micro-batch's activations between stages.
  void set_activation_bytes(std::uint64_t bytes) { activation_bytes_ = bytes; }
  stage_report& report() { return report_; }

  gradient_exchange& gradients() { return exchange_; }
  const gradient_exchange& gradients() const { return exchange_; }
  /// Gives this stage's gradients to its hosts' all-reduce. Returns what to send.
  gradient_exchange::outgoing add_gradients(stage_gradients g);
  /// This pipeline's part of the iteration's record; none: another stage has it, or the training
  /// does not heal.
  std::optional<pipeline_record> own_record() const;
  /// The newest update. None: another stage's was taken, or the training does not heal.
  const std::optional<agreed_update>& last_update() const { return last_update_; }
  /// The factor of their sum, which makes it the mean over all micro-batches.
  double gradient_scale() const;

  /// The update is over; report().end_s is set. `hops`: the transfers to this stage.
  void end_iteration(const gpu::operations::update::result& update, const hop_times& hops);

  // -- checkpoints

  /// Another one is still being written, so that one that may be skipped is.
  bool is_checkpoint_due() const;
  /// Not where a stage is not ready to copy its state: then no stage does.
  bool is_copy_due() const { return !skips_copy_; }
  /// Whoever reads it, or ends the training, waits for its files: it is not skipped, and the stage
  /// goes on when they are durable.
  bool waits_for_checkpoint() const;
  /// The stages of pipeline 0 write it: the others have the same parameters.
  bool writes_checkpoint() const;
  void mark_saved(std::uint64_t iteration) { saved_ = iteration; }

  /// Was the completed iteration not reported yet?
  bool has_report() const { return report_.iteration == iteration_; }
  /// The completed iteration's report, its tasks on the trainer's clock; `ahead_s`: how far this
  /// host's is ahead of that.
  stage_report take_report(double ahead_s);

 private:
  bool is_last() const { return setup_->name.stage + 1 == setup_->stages; }

  const stage_setup* setup_ = nullptr;
  std::uint64_t iteration_ = 0, until_ = 0, saved_ = 0;
  std::uint64_t window_began_ = 0;  // the iteration after the last barrier
  bool halted_ = false;             // only a run that names the last iteration counts
  bool skips_checkpoint_ = false;   // by an agreement of all stages
  bool skips_copy_ = false;         // as well
  std::uint64_t save_at_ = 0;       // the last iteration, after which it saves; 0: not yet known
  evaluation_share evaluations_;
  gradient_exchange exchange_;
  std::uint64_t own_bytes_ = 0, tied_bytes_ = 0;  // of gradients
  std::uint64_t activation_bytes_ = 0;
  double loss_sum_ = 0;
  std::vector<named_value> values_;  // of a program's loss: sums
  std::uint32_t in_flight_ = 0;      // micro-batches between their forward and backward
  operation_times times_;
  stage_report report_;
  std::optional<agreed_update> last_update_;
  std::vector<timed_task> transfers_;  // of the iteration that is to be reported
};

}  // namespace troupe::actors
