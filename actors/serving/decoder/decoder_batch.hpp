#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/serving/decoder/batch_executor.hpp"
#include "actors/serving/decoder/interface.hpp"
#include "gpu/inference/batch_queue.hpp"
#include "messages/domain/serving.hpp"
#include "messages/wire/generation.hpp"

namespace troupe::actors {

/// A decoder's model, its batch, and the device that executes the batch's rounds. A class apart
/// because it is the only part with which another thread is involved: the executor calls back on a
/// thread of its own, and everything else runs on the actor. It knows sequences, and neither
/// requests nor fronts.
///
///   loading -> idle, once the executor has opened the model
///   idle -> busy, by execute_next(), with one round; what arrives meanwhile waits for the next one
///   busy -> idle, when the round's results are on the actor
class decoder_batch {
 public:
  /// Called on the actor.
  using open_listener = std::function<void(const expected<void>&)>;
  using round_listener = std::function<void(const expected<std::vector<gpu::batch_result>>&)>;

  /// Loads the model. `self` outlives this; its address must not change from now on.
  void open(decoder_actor::pointer self, const serving& what,
            std::shared_ptr<batch_executor> executor, open_listener done);

  bool is_ready() const { return queue_.has_value(); }
  /// The rest needs a model that is ready.
  const decoder_model& model() const { return *model_; }
  gpu::batch_queue& queue() { return *queue_; }
  /// Refuses what this decoder can never complete (invalid), and what exceeds the sequences that it
  /// may hold (insufficient). `tokens`: of the prompt and the known completion; none in a
  /// simulation.
  expected<void> check(const completion_request& r, std::span<const std::uint32_t> tokens) const;
  /// The fields about the model and the batch.
  void write(decoder_state& to) const;
  /// Gives the device its next round, if there is something to compute and it has none.
  void execute_next(round_listener done);

 private:
  std::size_t held() const { return queue_->running() + queue_->waiting(); }

  decoder_actor::pointer self_ = nullptr;
  serving what_;
  std::shared_ptr<batch_executor> executor_;
  std::optional<decoder_model> model_;
  std::optional<gpu::batch_queue> queue_;
  std::uint32_t context_ = 0;  // positions of a sequence
  bool busy_ = false;
};

}  // namespace troupe::actors
