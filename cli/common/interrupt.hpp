#pragma once

#include <csignal>

namespace troupe::cli {

/// While it lives, Ctrl-C (SIGINT) and SIGTERM do not end the program, but are seen by arrived().
/// To be made before any thread is there.
class interrupt {
 public:
  interrupt();
  ~interrupt();
  interrupt(const interrupt&) = delete;
  interrupt& operator=(const interrupt&) = delete;

  /// Has a signal come? Once it has, always.
  bool arrived();

 private:
  sigset_t set_{}, before_{};
  bool arrived_ = false;
};

}  // namespace troupe::cli
