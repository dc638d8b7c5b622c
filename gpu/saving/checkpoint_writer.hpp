#pragma once

#include <functional>
#include <memory>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// Writes a node's checkpoint files behind its trainings. All calls may come from any thread.
class checkpoint_writer {
 public:
  /// Writes files, which are durable when it returns. It must not throw.
  using work = std::function<expected<void>()>;
  /// Called once with the work's result; it must only post a message.
  using done = std::function<void(expected<void>)>;

  /// Waits for the work that has begun; the rest is forgotten, and not answered.
  virtual ~checkpoint_writer() = default;
  /// Never blocks. Work is done in this order, one at a time.
  virtual void submit(work w, done d) = 0;
};

/// On a thread of its own.
std::shared_ptr<checkpoint_writer> make_checkpoint_writer();

}  // namespace troupe::gpu
