#pragma once

#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu/python/worker_process.hpp"
#include "messages/base/reason.hpp"
#include "runtime/process/keeper.hpp"

namespace troupe::actors {

class kept_worker;

/// The processes of programs' layers on this machine, each under a keeper. Stages start them from
/// threads of their own; all functions are thread-safe.
class local_workers {
 public:
  /// In `directory`; what it prints is appended to `output`. `keepers` is used by one thread at a
  /// time, under `mutex`.
  expected<std::unique_ptr<gpu::worker_process>> start(
      runtime::keeper_server& keepers, std::mutex& mutex, const gpu::worker_launch& what,
      std::vector<std::pair<std::string, std::string>> environment, std::string directory,
      std::string output);

  /// Workers may run until then, in seconds of the monotonic clock.
  void renew(double until_s);
  /// Forgets those that have ended. Call it from a timer.
  void poll();

 private:
  std::mutex mutex_;
  double until_s_ = std::numeric_limits<double>::infinity();
  std::vector<std::shared_ptr<kept_worker>> running_;
};

}  // namespace troupe::actors
