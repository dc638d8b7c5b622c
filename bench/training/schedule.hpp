#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/device/stage_device.hpp"

namespace troupe::bench {

struct iteration_time {
  double wall_s = 0, processor_s = 0;
  std::vector<double> busy_s;  // by stage
};

/// A model over several CPU devices, a thread each, driven without actors.
class pipeline {
 public:
  /// sublayers: of each stage, two a layer.
  pipeline(const model& m, std::uint32_t rows, const std::vector<std::uint32_t>& sublayers);

  /// One iteration of that many micro-batches in the order of one forward, one backward (1F1B), and
  /// the update.
  iteration_time iterate(std::uint32_t microbatches);

 private:
  struct running;
  void update(std::uint32_t microbatches, iteration_time& t);

  std::vector<gpu::stage_spec> specs_;
  std::vector<std::unique_ptr<gpu::stage_device>> stages_;
  payload tokens_, targets_;
};

}  // namespace troupe::bench
