#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/protocol/actor_state.hpp"
#include "actors/training/device/interfaces.hpp"
#include "actors/training/device/stage_executor.hpp"
#include "actors/training/device/stage_options.hpp"
#include "actors/training/lending/stage_lending.hpp"
#include "actors/training/stage/stage_reports.hpp"
#include "actors/training/stage/stage_tensors.hpp"
#include "actors/training/stage/stage_training.hpp"
#include "actors/training/stage/state_parts.hpp"

namespace troupe::actors {

/// One pipeline stage. It executes its order on its device, one step at a time, each as soon as its
/// inputs are available; then it all-reduces its gradients with its peers, updates the parameters,
/// and starts the next iteration. It needs the trainer only to be given more iterations.
///
/// Phases; every transition without an event below is the completion of the device's operation:
///
///   loading    the device is created, and loads the checkpoint that the training resumes from
///     -> communicator_id, of a CUDA device that has peers or tensor-parallel ranks; else -> steps
///   communicator_id   the device creates an id for a collective communicator, or reports why it
///   cannot
///     -> steps; reports "ready", with the id or the reason
///   joining    the device joins the communicator, or finds out that it cannot
///     -> steps; reports which
///   steps      runs the order: waits for a step's input, or the device executes it
///     -> joining, on a stage_run with a group id, before the first step
///     -> gradients, after the last step, if the hosts all-reduce
///     -> exchange, after the last step, if the devices all-reduce
///     -> norms or commit, after the last step, if no other stage shares its parameters
///   gradients  the device copies its gradients to the host
///     -> exchange
///   exchange   reduce-scatter and all-gather by tensors, or an all-reduce of the devices
///     -> norms, when the sums are complete, of a device that clips or scales by the norm
///     -> commit, when they are, of any other
///   norms      the device computes the squared norms of its parts of the sums
///     -> commit
///   commit     the stages of all pipelines agree that each has its sums, and add up their norms
///     -> update, when all are ready to
///   update     the optimizer step
///     -> evaluating, if held-out samples are due; -> saving, if a checkpoint is due; else reports
///     the iteration -> steps
///   evaluating runs held-out micro-batches forward: waits for the next one's input, or the device
///   executes it
///     -> saving, if a checkpoint is due; else reports the iteration -> steps
///   saving     the device copies its part of the checkpoint, which the node's writer writes while
///   the training goes on; after the last iteration, and held-out samples, it waits for the writer
///     -> reports the iteration -> steps
///   resetting  the device forgets what was under way when the view changed -> steps
///   keeping    the device writes its state into its node's memory, for a worker that ends
///     -> saving, if a checkpoint is due; else reports the iteration -> steps
///   giving     the device writes its state, for a peer that joins the view -> steps
///   standby    the device is ready, of a stage that others run: waits for a view that it joins
///     -> taking
///   taking     a peer's state arrives in parts, or the device takes it, or a copy of its own ->
///   steps; reports that it goes on in the view
///
/// Two flags end it from any phase. `failed_` (an error): it has reported why, and from then on
/// only repeats unacknowledged reports. `device_released_` (release_device): its part of the lease
/// is over; it only answers tensor requests. A halt (stage_run::halt) limits the iterations: it
/// completes the one that it has begun, and goes on only to the one that the trainer names.
///
/// Preconditions, checked by stage_checks.hpp: setup, orders, tensors and requests have valid
/// indices and come from the hosts that may send them. Tensors may be lost, repeated and late, but
/// peers are at most one iteration ahead, since each iteration ends with their gradients.
///
/// The class has the phases only: the order of events, and the consequence of each. The rest has
/// classes of its own: the executor (the device, or its simulation), the training (its
/// iterations, gradients, checkpoints and report), the tensors from and to other stages, the
/// reports to the trainer, and the lending of the idle device to a guest.
class stage_state {
 public:
  using interface = stage_actor;
  static constexpr const char* actor_name = "stage";

  void start(stage_actor::pointer self, stage_options o);
  void on(const inbound<stage_run>& m);
  void on(const inbound<tensor>& m);
  void on(const inbound<tensor_request>& m);
  void on(const release_device&);
  void on(const device_done& d) {
    if (executor_ && d.abandoned == executor_->abandoned()) on_device_done(d.what);
  }

  /// It has thrown, and ends: so does the lease.
  void fail_work(const std::string& why);

 private:
  enum class phase {
    loading,
    communicator_id,
    joining,
    steps,
    gradients,
    exchange,
    norms,
    commit,
    update,
    evaluating,
    saving,
    resetting,
    standby,
    taking,
    giving,
    keeping
  };

  // Setting up.
  bool create_device();
  void load();
  void request_group_id();
  void on_group(const stage_run& r);
  void end_join(std::optional<reason> refused);
  void report_ready(stage_report ready = {});

  // Steps.
  void take_plan(const stage_run& r);
  void take_times(const stage_run& r);
  void advance();
  void begin_iteration();
  void begin_step(const stage_step& s);
  bool is_last_backward() const;
  void end_step(const stage_step& s, gpu::outcome o);

  // The end of an iteration.
  void begin_gradients();
  void begin_exchange(gpu::own_and_tied gradients);
  void advance_exchange();
  void prepare(gpu::own_and_tied sums);
  void begin_commit(std::vector<double> norms);
  void advance_commit();
  void update();
  bool sums_gradients() const;
  bool agrees() const;
  void be_idle_until_update();
  void end_update(const gpu::operations::update::result& done);
  void advance_evaluation();
  void end_evaluation(gpu::outcome o);
  void end_iteration();
  void save();
  bool must_wait_for_files() const;
  void end_copy(gpu::outcome copied);
  void files_written(std::uint64_t iteration, const expected<void>& ok);
  void saved();

  // Views.
  bool on_view(const stage_run& r);
  void gather(std::uint64_t view);
  void stop();
  void forget_iteration();
  void go_on(const view_begin& b);
  void end_reset();
  void answer_view(bool begun);
  bool is_word_of_view(const tensor& t) const;
  bool saves_for_lost();
  void answer_standby();
  bool on_join(const stage_run& r);
  void join_view(const view_begin& b);
  void ask_for_state();
  void take_part(const tensor& t, const payload& body);
  void end_join_view();
  void fail_join(const reason& why);
  void give_state();
  void give_tied_sum(const tensor_request& r);
  void end_give(expected<gpu::outcome> r);
  void send_part(const tensor_request& r);
  bool may_step();
  bool may_update();
  stage_replica::wake waker();

  // Copies of its state.
  bool may_copy() const;
  void keep_state();
  void end_keep_state(const expected<gpu::outcome>& r, double took_s);
  void end_keep();
  void add_copies(stage_report& r) const;
  void restore(const view_begin& b);
  void load_copy();

  // The end of the training.
  void halt(const stage_run& r);
  void report_halted();
  void end_after(std::uint64_t last);
  void report(stage_report r);
  void notify_of_end();
  void fail(const reason& why);

  // The device.
  void on_device_done(expected<gpu::outcome> r);
  reason in_its_step(reason why) const;
  bool may_go_on_alone(const reason& why) const;
  void submit(gpu::operation o);
  void give(std::function<void()> to_device);
  void be_idle(std::size_t operation);
  std::optional<std::size_t> operation_number() const;
  void record_task(task_kind what, std::uint32_t microbatch, double took_s);

  // Tensors.
  void accept(const tensor& t, const payload& body);
  void send(tensor t, payload body);
  void send_all(gradient_exchange::outgoing gradients);
  stage_tensors::wait waits_for() const;

  stage_step evaluation_step() const;
  const stage_name& me() const { return o_.setup.name; }
  bool first() const { return me().stage == 0; }
  bool last() const { return me().stage + 1 == o_.setup.stages; }
  double now_s() const { return o_.messenger.now_s(); }

  stage_actor::pointer self_ = nullptr;
  stage_options o_;
  std::unique_ptr<stage_executor> executor_;  // none: the device could not be created
  stage_lending lending_;
  stage_training training_;
  stage_reports reports_;
  stage_tensors tensors_;

  phase phase_ = phase::loading;
  bool busy_ = false;  // the device executes an operation, or will once the guest's has ended
  bool failed_ = false;
  bool asked_to_join_ = false;
  bool device_released_ = false;             // its part of the lease is over
  std::size_t next_ = 0;                     // of the order
  std::uint32_t evaluated_ = 0;              // held-out micro-batches of this iteration
  gpu::operations::update::result updated_;  // of this iteration
  std::vector<bool> recomputes_;             // by micro-batch
  double submitted_s_ = 0;                   // when the device was last given an operation
  double exchange_began_s_ = 0;

  std::optional<std::uint64_t> writing_;  // the checkpoint that the writer has

  std::uint64_t view_ = 0;               // the one that it runs in, or is gathered for
  std::optional<std::uint64_t> gather_;  // the view to be gathered for, once it has updated
  std::uint32_t gathered_at_ = 0;        // held-out micro-batches done when it was last asked to
  bool stopped_ = false;                 // gathered: waits for its view to begin
  bool asked_replica_ = false;           // which will wake it

  bool has_memory_ = true;  // for copies of its state
  double copied_s_ = 0;     // when the last one was made,
  double copying_s_ = 0;    // and how long it took
  bool restoring_ = false;  // its weights are not yet those of the copy that it goes on from

  bool has_joined_ = false;                // it stood by before
  state_parts taken_;                      // of its state, while it joins
  std::uint32_t takes_ = 0;                // from the peer of this pipeline
  std::uint64_t asked_ = 0;                // how often it has asked for a part
  std::vector<std::uint32_t> gives_;       // to these pipelines' stages, before its next step
  std::optional<payload> given_;           // the state that it gives
  bool can_give_ = false;                  // it could be read
  std::uint64_t given_at_ = 0;             // iterations done, of that state
  std::vector<tensor_request> asked_for_;  // before it was there
};

}  // namespace troupe::actors
