#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// A worker's process, which whoever has started it watches and ends.
class worker_process {
 public:
  /// Ends the process and all its descendants soon, without waiting for it: the worker has been
  /// asked to stop, and may take the two seconds that are usual.
  virtual ~worker_process() = default;

  /// Kills it and all its descendants now, without waiting.
  virtual void kill() = 0;
  /// How it ended, for people ("was killed by signal 9"); none: it runs. Never blocks, and may be
  /// called from any thread.
  virtual std::optional<std::string> ended() = 0;
};

/// A worker to start. The caller adds what only it knows (PYTHONPATH,
/// CUDA_VISIBLE_DEVICES), and keeps what it prints.
struct worker_launch {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string directory;  // the program's
};

using worker_starter =
    std::function<expected<std::unique_ptr<worker_process>>(const worker_launch& what)>;

}  // namespace troupe::gpu
