#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "messages/base/fields.hpp"

namespace troupe {

/// A Python file with layers, loss, data and optimizer: key `program` of `train:`. Each stage's
/// layers are computed by a worker, a process of its own.
struct layer_file {
  std::string file;              // the same path and content on every node
  std::string sha256;            // of its content, when it was submitted
  std::string arguments;         // for its functions by name: a JSON object
  std::string python;            // interpreter; empty: python3
  std::uint32_t threads = 1;     // of a worker on a CPU
  std::uint32_t slot_mb = 1024;  // a stage's shared memory for tensors, at most
  /// Only algorithms whose results repeat; none: on CPUs.
  std::optional<bool> deterministic;
  /// Who sums the gradients of several pipelines: `host`, in a fixed order, or `torch`, the workers
  /// by torch.distributed. Empty: host.
  std::string gradients;

  TROUPE_FIELDS(layer_file, file, sha256, arguments, python, threads, slot_mb, deterministic,
                gradients);
};

/// A number that a program's loss gives beside itself: its mean is sum / weight.
struct named_value {
  std::string name;
  double sum = 0, weight = 0;

  TROUPE_FIELDS(named_value, name, sum, weight);
};

/// Losses of held-out samples, as a training has evaluated them.
struct held_out_losses {
  std::uint64_t iteration = 0;  // of the newest evaluation: after that many
  double loss = 0;
  std::uint64_t best_iteration = 0;  // of the lowest loss; of equal ones the first
  double best_loss = 0;

  TROUPE_FIELDS(held_out_losses, iteration, loss, best_iteration, best_loss);
};

}  // namespace troupe
