#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/training/device/made_backend.hpp"
#include "gpu/device/simulated_values.hpp"
#include "gpu/device/stage_device.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// A stage's weights on their device, which the stages of one or, after a loss, of several
/// pipelines share. Their pipelines go through it one after the other, in ascending order: the
/// gradients of one are taken, and are zero, before the next one's first step. So gradients are
/// the same whoever computes them, and no two stages wait for each other. An update is done once
/// for all.
///
/// Called by the stages' actors, each on its own thread. `wake`: called, once and on another
/// stage's thread, when it is worth asking again; it must only post a message.
class stage_replica {
 public:
  using wake = std::function<void()>;

  /// The first stage, that of this pipeline, has done that many iterations.
  stage_replica(std::uint32_t pipeline, std::uint64_t iteration)
      : iteration_{iteration}, pipelines_{pipeline} {}

  /// The device, which ends with the last stage that holds it, without tokens; without a device:
  /// simulated, or released.
  stage_backend backend() const;
  void set_backend(const stage_backend& b);
  /// Simulated weights; null: real, or not yet known.
  std::shared_ptr<gpu::simulated_values> values() const;
  void set_values(const std::shared_ptr<gpu::simulated_values>& v);

  /// The weights are a peer's, after that many iterations.
  void take(std::uint64_t iteration);

  /// A stage goes on in this view: the pipelines, in ascending order, that share the weights from
  /// then on. `resets`: this one has left an iteration under way. True: nothing has begun in
  /// this view, so it resets the device and calls end_reset(), which the others wait for.
  bool begin(std::uint64_t view, const std::vector<std::uint32_t>& pipelines, bool resets);
  void end_reset();
  bool is_shared() const;

  /// May this pipeline's stage do its steps of the iteration after this one, in its view?
  bool may_step(std::uint32_t pipeline, std::uint64_t view, std::uint64_t iteration, wake w);
  /// Are the weights those after that many iterations?
  bool has_done(std::uint64_t iteration, wake w);
  /// Its gradients were taken.
  void end_steps(std::uint32_t pipeline, std::uint64_t iteration);

  enum class update { execute, wait, done };
  /// All stages may update after this iteration. `execute`: this one has to, and to call
  /// end_update(); `done`: updated() says how.
  update begin_update(std::uint64_t iteration, wake w);
  void end_update(const gpu::operations::update::result& done);
  gpu::operations::update::result updated() const;

 private:
  void wake_all();

  mutable std::mutex guard_;
  std::weak_ptr<gpu::stage_device> device_;
  std::weak_ptr<gpu::program_device> norms_;
  std::optional<worker_report> worker_;
  std::weak_ptr<gpu::simulated_values> values_;
  std::uint64_t iteration_ = 0;  // updates done
  bool updating_ = false;
  gpu::operations::update::result updated_;
  std::uint64_t view_ = 0;
  bool resetting_ = false, has_begun_ = false;  // a reset, or a reset or a step in this view
  std::vector<std::uint32_t> pipelines_;
  std::map<std::uint32_t, std::uint64_t> taken_;  // by pipeline: iterations, the present one's too
  std::vector<wake> waiting_;
};

}  // namespace troupe::actors
