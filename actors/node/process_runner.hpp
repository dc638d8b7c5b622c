#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpu/worker/worker_process.hpp"
#include "messages/base/reason.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/work.hpp"

namespace troupe::actors {

/// Reason for stopping work without an order.
inline constexpr const char* lease_expired = "no contact with the controller for more than a lease";

struct log_piece {
  std::uint64_t offset = 0;  // later than the requested one if the log's beginning was dropped
  payload bytes;
};

/// Starts and stops the programs of one node. Never blocks; never called from two threads.
class process_runner {
 public:
  virtual ~process_runner() = default;

  /// Starts the order's command in its own process group, or returns why it cannot: `stale` if its
  /// port is taken, so that it may start with another one, `unavailable` for what this node lacks.
  /// Failures found later, such as a missing program, are reported by poll().
  virtual expected<void> start(const work_order& w) = 0;

  /// Free ports at which ranks of programs may meet, rank 0 being started here.
  virtual std::vector<std::uint16_t> free_ports() { return {}; }

  /// The interpreter of this node's workers, and whether it has PyTorch; none: not known.
  virtual std::optional<python_environment> python() const { return {}; }

  /// The node's lease: nothing may run beyond this time on the node's monotonic clock, whatever
  /// happens to the node. Also applies to programs started later.
  virtual void renew(double until_s) = 0;

  /// Terminates the group with a grace period; `at_once`: without one.
  virtual void stop(lease_id lease, bool at_once) = 0;

  /// Why nothing can be started here now, such as a full disk; empty: it can, as far as is
  /// known. Changes with start() and poll().
  virtual std::string unable() const { return {}; }

  /// Calls `on_event`, from any thread, when poll() may have changes, as long as this object lives.
  /// Some ends come without an event: poll from a timer, too.
  virtual void watch(std::function<void()> on_event) = 0;

  /// The state of every program that has been started and not yet been reported as ended.
  virtual std::vector<part_report> poll() = 0;

  /// Appends a line, an event of the built-in trainer, to a lease's output.
  virtual void append_log(lease_id lease, const std::string& line) = 0;

  /// Starts workers of a lease's stages, from any thread; they appear, and end, with poll().
  /// Null: this node starts none.
  virtual gpu::worker_starter workers(lease_id) { return {}; }
  /// Kills the workers of a lease.
  virtual void end_workers(lease_id) {}

  /// Up to 64 KiB of a lease's output from `offset` on.
  virtual expected<log_piece> read_log(lease_id lease, std::uint64_t offset) const = 0;
};

}  // namespace troupe::actors
