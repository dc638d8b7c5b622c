#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/training/device/socket_folder.hpp"
#include "actors/training/device/state_files.hpp"
#include "gpu/device/stage_device.hpp"
#include "gpu/saving/checkpoint_writer.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The gradients of a stage, those of a tied embedding apart. The payloads of a simulation have no
/// bytes: it counts them.
struct stage_gradients {
  payload own, tied;
  std::uint64_t own_bytes = 0, tied_bytes = 0;
};

/// Executes the operations of one stage: on a device (device_stage.hpp), or as times on the world's
/// clock (simulated_stage.hpp). The two differ in all that depends on whether tensors have bodies;
/// the stage's phases do not, so that a simulation runs the code of a real training.
///
/// Owned and called by the stage's actor. Results of start() and submit() reach its
/// on_device_done(), later and on its thread, one at a time.
class stage_executor {
 public:
  virtual ~stage_executor() = default;

  /// Prepares the device for the iterations after this one: loads the checkpoint. False: nothing
  /// needs time, and there is no result.
  virtual bool start(std::uint64_t iteration) = 0;
  /// REQUIRES: the operation before it has ended. No effect after release().
  virtual void submit(gpu::operation o) = 0;
  /// REQUIRES: as submit(); needs_norm().
  virtual void submit_norms(gpu::operations::norms n) = 0;
  /// Gives the device back. The result of an operation under way still arrives.
  virtual void release() = 0;

  /// The result of an operation under way does not arrive any more. The device ends it, before the
  /// next one.
  void abandon() { ++abandoned_; }
  /// How often that was.
  std::uint64_t abandoned() const { return abandoned_; }

  /// Adds the inputs of a forward: `activation`, or the tokens and targets of the stages at the
  /// ends. Fails if the data cannot be read.
  virtual expected<void> add_inputs(gpu::operations::forward& step, std::uint64_t iteration,
                                    payload activation) = 0;
  /// Bytes of the tensor that follows from a step. `input_bytes`: of the step's own input.
  virtual std::uint64_t output_bytes(stage_step::kind what, const payload& body,
                                     std::uint64_t input_bytes) const = 0;
  /// False: a simulated training whose gradients have no size.
  virtual bool has_gradients() const = 0;
  /// From the result of operation `gradients`.
  virtual stage_gradients take_gradients(gpu::own_and_tied gradients) const = 0;

  /// The device writes its state, of this name; the result of an operation follows, as submit()'s.
  virtual void submit_state(const state_name& which) = 0;
  /// The state that it has written. Fails if that cannot be read. REQUIRES: the operation has ended
  /// well.
  virtual expected<payload> take_state() = 0;
  /// The device takes a peer's. Fails, without an operation, if it is no such state.
  virtual expected<void> submit_new_state(const payload& state, const state_name& which) = 0;
  /// The device has taken it: what it was read from goes.
  virtual void forget_state() {}
  /// The folder with the state that it has written; null: it has none, or memory is too small for
  /// two more. REQUIRES: as take_state().
  virtual std::shared_ptr<const socket_folder> take_state_folder() { return nullptr; }
  /// The device takes the state from there; the result of an operation follows, as submit()'s.
  virtual void submit_state_folder(const std::shared_ptr<const socket_folder>&) {}
  /// The size of a state as its transfer counts it.
  virtual std::uint64_t state_bytes(const payload& part) const = 0;

  /// The device copies what its file of a checkpoint has, and may go on; the result of an operation
  /// follows, as submit()'s. `directory`: of the checkpoint; `iteration`: completed. Fails, without
  /// an operation, if the stage's lease may not write there any more.
  virtual expected<void> submit_copy(const std::string& directory, std::uint64_t iteration) = 0;
  /// The copy has failed, as where memory is too small for it. True: another try, in which the
  /// device writes its file itself, may do better.
  virtual bool can_write_itself() { return false; }
  /// From that result: writes the file, on any thread and without the device. Null: the device has
  /// written it itself.
  virtual gpu::checkpoint_writer::work take_copy(gpu::outcome copied) = 0;

  /// The digest of simulated weights; none: they are real.
  virtual std::optional<std::uint64_t> simulated_weights() const { return {}; }

  /// Does an update need the squared norm of all stages' gradients?
  virtual bool needs_norm() const { return false; }

  /// A program's worker, when it is ready.
  virtual std::optional<worker_report> worker() const { return {}; }

  /// May its devices and those of its peers all-reduce without the hosts?
  virtual bool may_join_group() const = 0;
  /// Its iterations count as saved although no checkpoint is written.
  virtual bool saves_without_files() const = 0;
  /// Operations take longer at one time than at another.
  virtual bool times_vary() const = 0;

  /// The part of a received tensor's transfer that hosts take, and that must be waited for here.
  virtual double handling_s(const tensor& t) const = 0;
  /// A tensor's transfer to another host, as long as none has been measured.
  virtual double expected_transfer_s(std::uint64_t bytes) const = 0;
  /// Carries a tensor to a stage on this node, and calls `deliver` when it arrives. False: it need
  /// not be waited for.
  virtual bool carry(const stage_name& to, std::uint64_t bytes, std::function<void()> deliver) = 0;

 private:
  std::uint64_t abandoned_ = 0;
};

}  // namespace troupe::actors
