#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/protocol/messenger.hpp"
#include "actors/training/collectives/device_all_reduce.hpp"
#include "actors/training/collectives/gradient_all_reduce.hpp"
#include "actors/training/interfaces.hpp"
#include "actors/training/sent_tensors.hpp"
#include "actors/training/simulated_link.hpp"
#include "actors/training/stage_times.hpp"
#include "gpu/device/device_executor.hpp"
#include "gpu/device/stage_device.hpp"
#include "messages/base/time.hpp"
#include "planners/bubbletea/step_clock.hpp"

namespace troupe::actors {

/// Returns the tokens of a micro-batch and their targets: a function of its arguments alone, as
/// long as the data can be read.
using token_feed = std::function<expected<std::pair<payload, payload>>(std::uint64_t iteration,
                                                                       std::uint32_t microbatch)>;

/// A real device for a stage, and its data.
struct stage_backend {
  std::shared_ptr<gpu::stage_device> device;
  token_feed tokens;  // of the first and the last stage
};

struct stage_options {
  stage_setup setup;
  double received_s = 0;  // when the setup arrived, on this host's monotonic clock
  address trainer = 0;
  actors::messenger messenger;
  /// Creates the device, which may take minutes: the stage then has its own thread.
  std::function<expected<stage_backend>()> create;
  /// Set once it is created; may be null.
  std::shared_ptr<std::atomic<bool>> created;
  /// Without `create` and `device` the stage has a simulated device, `slowdown` times slower than
  /// its costs (null: as given), ready after start_s.
  std::shared_ptr<gpu::stage_device> device;
  std::function<double()> slowdown;
  double start_s = 0;
  link_cost same_node;    // simulated device: the link to other GPUs of this node,
  link_cost slowest_lan;  // and the slowest one to another node of the datacenter
  token_feed tokens;      // real device: of the first and the last stage
  /// With a guest: the device's, to which the stage says when it waits. Null: nobody else uses it.
  std::shared_ptr<gpu::device_executor> executor;
  address gateway = 0;  // of this datacenter; with a guest
};

/// One pipeline stage. It executes its order on its device, one step at a time, each as soon as its
/// inputs are available; then it all-reduces its gradients with its peers, updates the parameters,
/// and starts the next iteration. It needs the trainer only to be given more iterations.
///
/// Phases; every transition without an event below is the completion of the device's operation:
///
///   loading    the device is created, and loads the checkpoint that the training resumes from
///     -> group_id, of a CUDA device that has peers or tensor-parallel ranks; else -> steps
///   group_id   the device creates an id for a collective communicator, or says why it cannot
///     -> steps; reports "ready", with the id or the reason
///   joining    the device joins the communicator
///     -> steps
///   steps      runs the order: waits for a step's input, or the device executes it
///     -> joining, on a stage_run with a group id, before the first step
///     -> gradients, after the last step, if the hosts all-reduce
///     -> exchange, after the last step, if the devices all-reduce
///     -> update, after the last step, if there is nobody to sum with
///   gradients  the device copies its gradients to the host
///     -> exchange
///   exchange   reduce-scatter and all-gather by tensors, or an all-reduce of the devices
///     -> update, when the sums are complete
///   update     the optimizer step
///     -> saving, if a checkpoint is due; else reports the iteration -> steps
///   saving     the device writes its part of the checkpoint
///     -> reports the iteration -> steps
///
/// Two flags end it from any phase. `failed_` (an error): it has reported why, and from then on
/// only repeats unacknowledged reports. `device_released_` (release_device): its part of the lease
/// is over; it only answers tensor requests. `halted_` (stage_run::halt) limits the iterations: it
/// completes the one that it has begun, and goes on only to the one that the trainer names.
///
/// Preconditions, checked by stage_checks.hpp: setup, orders, tensors and requests have valid
/// indices and come from the hosts that may send them. Tensors may be lost, repeated and late, but
/// peers are at most one iteration ahead, since each iteration ends with their gradients.
///
/// While it waits for other stages or the trainer, a guest may use its device: in steps for an
/// input or for more iterations, in exchange for the sums of the hosts.
///
/// Sources: stage.cpp (phases, steps, reports), stage_gradients.cpp (group_id, joining, gradients,
/// exchange, update), stage_requests.cpp (lost tensors), stage_lending.cpp (guests).
class stage_state {
 public:
  stage_state() = default;
  void start(stage_actor::pointer self, stage_options o);
  void on_stage_run(const stage_run& r);
  void on_tensor(const tensor& t, const payload& body);
  void on_tensor_request(const tensor_request& r);
  void on_release_device();
  void on_device_done(expected<gpu::outcome> r);

 private:
  enum class phase { loading, group_id, joining, steps, gradients, exchange, update, saving };
  /// Tensors received for one iteration.
  struct inbox {
    std::uint64_t iteration = 0;
    std::vector<std::optional<payload>> activation, gradient;  // by micro-batch
    gradient_all_reduce host_sum;
    device_all_reduce device_sum;
    hop_times hops;
  };

  bool create_device();
  void simulate();
  void load();
  void request_group_id();
  void join_group(const stage_run& r);
  void advance();
  void accept(const tensor& t, const payload& body);
  void begin_iteration();
  bool ready(const stage_step& s) const;
  void begin_step(const stage_step& s);
  void end_step(const stage_step& s, gpu::outcome o);
  void begin_gradients();
  void begin_exchange(gpu::outcome o);
  void advance_exchange();
  void advance_device_exchange();
  void update(payload own, payload tied);
  void end_iteration(const gpu::outcome& o);
  void save();
  void saved();
  void halt(const stage_run& r);
  void report_halted();
  void report_ready(stage_report ready = {});
  void report(stage_report r);
  void send_report(stage_report& r);
  void fail(const reason& why);

  void submit(gpu::operation o);
  void give_to_device(gpu::operation o);
  void begin_lending();
  void take_times(const stage_run& r);
  void lend(std::size_t operation);
  double take_back();
  std::uint64_t of_window() const;
  std::optional<std::size_t> operation_number() const;
  void signal_begin();
  void add_use(stage_report& r);
  void record_prefills(stage_report& r, const gpu::executor_counts& c) const;
  void send(tensor::kind what, std::uint32_t to_pipeline, std::uint32_t to_stage,
            std::uint32_t microbatch, payload body, std::uint64_t bytes, const wan_path& path);
  void send_all(std::vector<gradient_all_reduce::outgoing> tensors);
  address address_of(std::uint32_t pipeline, std::uint32_t stage) const {
    const auto& s = o_.setup;
    return pipeline == s.name.pipeline ? s.neighbours[stage] : s.peers[pipeline];
  }
  bool is_duplicate(const inbox& box, const tensor& t) const;
  bool waits_for_neighbour() const;
  double request_after_s(tensor::kind k) const;
  void await_tensors();
  void check_missing_at(double at_s);
  void request_missing();
  std::vector<tensor_request> missing_tensors() const;
  void record_task(task_kind what, std::uint32_t microbatch, double took_s);
  inbox& inbox_of(std::uint64_t iteration) { return inboxes_[iteration % 2]; }
  inbox& current() { return inbox_of(iteration_); }
  const inbox& current() const { return inboxes_[iteration_ % 2]; }
  void clear(inbox& box, std::uint64_t iteration);
  bool first() const { return o_.setup.name.stage == 0; }
  bool last() const { return o_.setup.name.stage + 1 == o_.setup.stages; }
  /// On the trainer's clock.
  double training_time_s() const { return o_.messenger.now_s() - clock_ahead_s_; }

  stage_actor::pointer self_ = nullptr;
  stage_options o_;
  bool simulated_ = false;
  std::unique_ptr<simulated_link> node_link_;  // of a simulated device
  phase phase_ = phase::loading;
  bool busy_ = false;  // the device executes an operation
  bool failed_ = false;
  bool joined_ = false;           // the devices of the stage and its peers all-reduce
  bool device_released_ = false;  // its part of the lease is over
  std::uint64_t iteration_ = 0;   // completed
  std::uint64_t until_ = 0;       // the last iteration that it may run
  std::uint64_t acknowledged_ = 0, saved_ = 0;
  bool halted_ = false;           // only a run that names the last iteration counts
  std::uint64_t save_at_ = 0;     // the last iteration, after which it saves; 0: not yet known
  std::size_t next_ = 0;          // of the order
  std::vector<bool> recomputes_;  // by micro-batch
  std::array<inbox, 2> inboxes_;  // of this iteration and the next one
  sent_tensors sent_;
  request_timeout timeout_;
  // The iteration and step that wait for a tensor, since when, when the tensor is requested, and
  // when the timer fires.
  std::pair<std::uint64_t, std::size_t> awaited_{~std::uint64_t{0}, 0};
  double waiting_since_s_ = 0, request_at_s_ = 0, timer_at_s_ = never;
  std::uint64_t own_bytes_ = 0, tied_bytes_ = 0;          // of gradients
  std::uint64_t activation_bytes_ = 0, input_bytes_ = 0;  // sent to and received from neighbors
  double exchange_began_s_ = 0;
  stage_report iteration_report_;        // of the present iteration
  std::vector<timed_task> transfers_{};  // of the one that is to be reported
  operation_times times_;
  double submitted_s_ = 0;  // when the device was last given an operation, on this host's clock
  // How far this host's clock is ahead of the trainer's; when the trainer sent the last message, on
  // its clock, and when that arrived, on this one.
  double clock_ahead_s_ = 0, run_sent_s_ = 0, run_received_s_ = 0;
  double loss_sum_ = 0;
  std::uint32_t in_flight_ = 0;  // micro-batches between their forward and backward
  std::deque<stage_report> unacknowledged_;
  // With a guest: since when the device is idle and may be lent.
  std::optional<double> lent_since_s_;
  double idle_s_ = 0;               // of this iteration, while lent
  bool knows_wait_ = false;         // an operation has begun since the plan was made
  std::uint64_t window_began_ = 0;  // the iteration after the last barrier
  planners::step_clock clock_;
  planners::delay_budget budget_;
};

stage_actor::behavior_type stage(stage_actor::stateful_pointer<stage_state> self, stage_options o);

}  // namespace troupe::actors
