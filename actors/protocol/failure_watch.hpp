#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <caf/all.hpp>

#include "actors/protocol/actor_failure.hpp"

namespace troupe::actors {

/// Reports when the first of several actors ends, and why. CAF calls an attached functor when the
/// actor ends, or at once if it has ended. (A monitoring actor would be garbage-collected, since
/// monitors are not references.)
class failure_watch {
 public:
  void add(const caf::actor& a) {
    caf::actor_cast<caf::abstract_actor*>(a)->attach_functor(
        [failure = first_](const caf::error& why) {
          const std::lock_guard guard{failure->mutex};
          if (!failure->why) failure->why = sentence_of(why);
        });
  }

  /// Nothing: all of them are alive.
  std::optional<std::string> why() const {
    const std::lock_guard guard{first_->mutex};
    return first_->why;
  }

 private:
  struct failure {
    std::mutex mutex;
    std::optional<std::string> why;
  };
  std::shared_ptr<failure> first_ = std::make_shared<failure>();
};

}  // namespace troupe::actors
