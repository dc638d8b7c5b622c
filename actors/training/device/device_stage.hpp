#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/training/device/interfaces.hpp"
#include "actors/training/device/socket_folder.hpp"
#include "actors/training/device/stage_executor.hpp"
#include "actors/training/device/stage_options.hpp"

namespace troupe::actors {

/// A stage on a real device. The device executes operations on its own thread and posts each result
/// to the stage's actor as a `device_done`: the stage's state is only used by the actor's thread.
/// Tensors are payloads, which are shared and not copied; tokens are read when a forward needs
/// them.
class device_stage final : public stage_executor {
 public:
  /// `setup` outlives it: it is the stage's own.
  device_stage(stage_actor::pointer self, const stage_setup& setup, stage_backend backend)
      : self_{self}, setup_{setup}, backend_{std::move(backend)} {}

  bool start(std::uint64_t iteration) override;
  void submit(gpu::operation o) override;
  void submit_norms(gpu::operations::norms n) override;
  void release() override { backend_.device = nullptr, backend_.norms = nullptr; }

  expected<void> add_inputs(gpu::operations::forward& step, std::uint64_t iteration,
                            payload activation) override;
  std::uint64_t output_bytes(stage_step::kind, const payload& body, std::uint64_t) const override {
    return body.bytes().size();
  }
  bool has_gradients() const override { return true; }
  stage_gradients take_gradients(gpu::own_and_tied gradients) const override;

  void submit_state(const state_name& which) override;
  expected<payload> take_state() override;
  expected<void> submit_new_state(const payload& state, const state_name& which) override;
  void forget_state() override { state_folder_.reset(), taken_folder_.reset(); }
  std::shared_ptr<const socket_folder> take_state_folder() override;
  void submit_state_folder(const std::shared_ptr<const socket_folder>& from) override;
  std::uint64_t state_bytes(const payload& part) const override { return part.bytes().size(); }

  expected<void> submit_copy(const std::string& directory, std::uint64_t iteration) override;
  bool can_write_itself() override;
  gpu::checkpoint_writer::work take_copy(gpu::outcome copied) override;

  bool needs_norm() const override { return backend_.norms != nullptr; }
  std::optional<worker_report> worker() const override { return backend_.worker; }

  bool may_join_group() const override;
  bool saves_without_files() const override { return false; }
  /// By clocks, caches, and what else the machine does.
  bool times_vary() const override { return true; }

  /// Its real transfer has taken that time already.
  double handling_s(const tensor&) const override { return 0; }
  double expected_transfer_s(std::uint64_t bytes) const override;
  bool carry(const stage_name&, std::uint64_t, std::function<void()>) override { return false; }

 private:
  gpu::stage_device::done post() const;
  std::string state_path() const;

  stage_actor::pointer self_;
  const stage_setup& setup_;
  stage_backend backend_;
  std::optional<socket_folder> state_folder_;  // of a state on its way from or to the device
  std::shared_ptr<const socket_folder> taken_folder_;  // that the device reads
  state_name state_;
  std::string copied_for_;                      // the directory of the checkpoint
  std::shared_ptr<socket_folder> copy_folder_;  // where the device saves; null: not in memory
  bool writes_itself_ = false;                  // memory was too small
};

}  // namespace troupe::actors
