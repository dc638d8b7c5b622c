#pragma once

#include <cstdint>
#include <functional>

#include "actors/training/device/interfaces.hpp"
#include "actors/training/device/simulated_link.hpp"
#include "actors/training/device/stage_executor.hpp"
#include "actors/training/device/stage_options.hpp"
#include "gpu/device/simulated_device.hpp"

namespace troupe::actors {

/// A stage whose operations take the setup's costs and whose tensors have sizes and digests only.
/// Results come as the actor's delayed messages, so that the virtual world orders them with all
/// others: a run is reproducible to the bit, and its recorded fingerprints depend on the order of
/// these messages.
///
/// The network between nodes is simulated by the world. Links inside a node are simulated here,
/// since the world does not see messages between actors of one host.
class simulated_stage final : public stage_executor {
 public:
  /// `o` is the stage's own and outlives it. `done`: called with each result.
  simulated_stage(stage_actor::pointer self, const stage_options& o, gpu::stage_device::done done);

  bool start(std::uint64_t iteration) override;
  void submit(gpu::operation o) override;
  void submit_norms(gpu::operations::norms n) override;
  /// The result of the operation under way still arrives, as that of a real device does.
  void release() override { released_ = true; }

  expected<void> add_inputs(gpu::operations::forward& step, std::uint64_t iteration,
                            payload activation) override;
  std::uint64_t output_bytes(stage_step::kind what, const payload&,
                             std::uint64_t input_bytes) const override {
    return what == stage_step::kind::forward ? o_.setup.costs.activation_bytes : input_bytes;
  }
  bool has_gradients() const override { return o_.setup.costs.gradient_bytes > 0; }
  bool needs_norm() const override { return o_.setup.costs.norms_s.has_value(); }
  stage_gradients take_gradients(gpu::own_and_tied g) const override;
  void submit_state(const state_name& which) override;
  expected<payload> take_state() override;
  expected<void> submit_new_state(const payload& state, const state_name& which) override;
  /// It saves without files.
  expected<void> submit_copy(const std::string&, std::uint64_t) override {
    submit({gpu::operations::digest{}});
    return {};
  }
  gpu::checkpoint_writer::work take_copy(gpu::outcome) override { return nullptr; }
  /// Parameters and two moments, each as large as the gradients.
  std::uint64_t state_bytes(const payload&) const override {
    return 3 * o_.setup.costs.gradient_bytes;
  }
  std::optional<std::uint64_t> simulated_weights() const override { return device_.state(); }

  bool may_join_group() const override { return false; }
  /// It has no weights: the trainer's count of iterations is all that a resumed training needs.
  bool saves_without_files() const override { return true; }
  bool times_vary() const override { return false; }

  double handling_s(const tensor& t) const override {
    return t.path.pairs > 0 ? o_.setup.costs.handling_s : 0;
  }
  double expected_transfer_s(std::uint64_t bytes) const override;
  bool carry(const stage_name& to, std::uint64_t bytes, std::function<void()> deliver) override;

 private:
  using event = std::function<void()>;
  void call_after(std::chrono::nanoseconds wait, event what);
  gpu::stage_device::done unless_abandoned();

  stage_actor::pointer self_;
  const stage_options& o_;
  gpu::stage_device::done done_;
  std::shared_ptr<gpu::simulated_values> values_;
  gpu::simulated_device device_;
  simulated_link node_link_;
  bool released_ = false;
};

}  // namespace troupe::actors
