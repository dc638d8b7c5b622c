#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <caf/all.hpp>

#include "actors/protocol/actor_failure.hpp"

namespace troupe::actors {

/// Learns when the first of some actors ends, and why. CAF calls a functor that is attached to an
/// actor when it ends, or at once if it has ended. (A watching actor would not do: CAF collects one
/// that nobody refers to, and monitors are no references.)
class failure_watch {
 public:
  void add(const caf::actor& a) {
    caf::actor_cast<caf::abstract_actor*>(a)->attach_functor(
        [verdict = verdict_](const caf::error& why) {
          const std::lock_guard guard{verdict->mutex};
          if (!verdict->why) verdict->why = sentence_of(why);
        });
  }

  /// Null: all of them live.
  std::optional<std::string> why() const {
    const std::lock_guard guard{verdict_->mutex};
    return verdict_->why;
  }

 private:
  struct verdict {
    std::mutex mutex;
    std::optional<std::string> why;
  };
  std::shared_ptr<verdict> verdict_ = std::make_shared<verdict>();
};

}  // namespace troupe::actors
