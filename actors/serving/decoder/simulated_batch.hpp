#pragma once

#include <functional>

#include "actors/serving/decoder/batch_executor.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/serving.hpp"
#include "planners/bubbletea/prefill_times.hpp"

namespace troupe::actors {

/// A simulated GPU: rounds take the times of planners/bubbletea/prefill_times.hpp, without the
/// embedding and the head, and tokens are a function of seed and position.
class simulated_batch final : public batch_executor {
 public:
  struct options {
    serving what;
    gpu_type gpu;
    double start_s = 0;                // until it is ready
    std::function<double()> slowdown;  // null: none
    /// Calls back after `s` seconds.
    std::function<void(double s, std::function<void()> what)> after;
  };
  explicit simulated_batch(options o) : o_{std::move(o)} {}

  void open(std::function<void(expected<decoder_model>)> done) override;
  void execute(gpu::batch_round r,
               std::function<void(expected<std::vector<gpu::batch_result>>)> done) override;

 private:
  double time_of(const gpu::batch_round& r) const;
  gpu::batch_result choose(gpu::sequence_id s, const gpu::next_token& n) const;

  options o_;
  planners::served_layer layer_;
  planners::prefill_rate rate_;
};

/// The token that a simulated device chooses at a position.
weighed_token simulated_token(const gpu::next_token& n, std::uint32_t vocabulary);

}  // namespace troupe::actors
