#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "messages/reason.hpp"

namespace troupe::runtime {

/// The number of a host's start. In its high bits a count: the larger one is the later start. The
/// low ones are random: nobody can guess it. `count` 0: the count is from the wall clock.
std::uint64_t make_incarnation(std::uint64_t count = 0);

/// Where a host keeps what outlives it. One process has it at a time, with what that process's
/// keepers still hold.
class state_directory {
 public:
  /// Makes it if it is not there. Refuses at once if another process has it; if that has died, and
  /// only its keepers are at work, waits `limit_s` for them.
  static expected<std::unique_ptr<state_directory>> open(const std::string& path,
                                                         double limit_s = 10);
  ~state_directory();
  state_directory(const state_directory&) = delete;

  const std::string& path() const { return path_; }
  /// Holds the lock; for keepers.
  int lock() const { return lock_; }

  /// Larger than any that this directory has given, whatever the clock says, and on disk.
  expected<std::uint64_t> next_incarnation();
  /// Nothing had ever started here before next_incarnation() was called.
  bool is_new() const { return new_; }

 private:
  explicit state_directory(std::string path) : path_{std::move(path)} {}
  expected<void> take(double limit_s);

  std::string path_;
  int lock_ = -1;
  bool new_ = false;
};

}  // namespace troupe::runtime
