#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "messages/base/descriptor.hpp"
#include "messages/base/reason.hpp"

namespace troupe::runtime {

/// Makes an incarnation, the number of a host's start. Its high bits are a count, so later starts
/// have larger numbers; its low bits are random, so that it cannot be guessed. `count` 0: minutes
/// since 1970.
std::uint64_t make_incarnation(std::uint64_t count = 0);

/// Where a node records its programs' process groups (runtime/process/process_group.hpp).
inline std::string process_records(const std::string& state) {
  return state + "/processes";
}

/// A host's persistent state. It is locked by one process at a time, together with that process's
/// keepers.
class state_directory {
 public:
  /// Creates the directory if needed. Fails at once if another process has it; if that process has
  /// died and only its keepers remain, kills their programs, as stopped keepers cannot, and waits
  /// up to `limit_s` for the keepers.
  static expected<std::unique_ptr<state_directory>> open(const std::string& path,
                                                         double limit_s = 10);

  const std::string& path() const { return path_; }
  /// The descriptor that holds the lock; for keepers.
  int lock() const { return lock_; }

  /// Returns a larger number than ever before, whatever the clock says, and makes it durable.
  expected<std::uint64_t> next_incarnation();
  /// Nothing had ever been started here before next_incarnation() was called.
  bool is_new() const { return new_; }

 private:
  explicit state_directory(std::string path) : path_{std::move(path)} {}
  expected<void> take(double limit_s);

  std::string path_;
  descriptor lock_;
  bool new_ = false;
};

}  // namespace troupe::runtime
