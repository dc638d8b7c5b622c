#pragma once

#include <functional>
#include <list>
#include <memory>
#include <set>

#include "gpu/worker/worker_process.hpp"
#include "messages/base/units.hpp"
#include "runtime/keeper/keeper.hpp"

namespace troupe::actors {

/// The workers of a node's stages, each under a keeper. Stages start and end theirs from their own
/// threads; what concerns keepers is done in poll(), on the node's.
class worker_runner {
 public:
  /// Runs a worker of a lease under a keeper.
  using start = std::function<expected<std::unique_ptr<runtime::kept_program>>(
      lease_id, const gpu::worker_launch&)>;

  worker_runner();
  /// Ends all workers. Starters remain, and start nothing.
  ~worker_runner();
  worker_runner(const worker_runner&) = delete;

  /// Called from any thread when poll() has something to do.
  void watch(std::function<void()> wake);
  /// For a lease's stages: returns at once, and poll() starts the process.
  gpu::worker_starter starter(lease_id lease);
  /// Kills a lease's workers, those too that have not been started.
  void end(lease_id lease);
  void renew(double until_s);
  /// Those that have workers.
  std::set<lease_id> leases() const;
  /// `on_start`: its descriptor is to be watched.
  void poll(const start& run, const std::function<void(int)>& on_start);

 private:
  struct worker;
  struct inbox;

  void end_some();

  std::shared_ptr<inbox> inbox_;
  std::list<worker> workers_;
};

}  // namespace troupe::actors
