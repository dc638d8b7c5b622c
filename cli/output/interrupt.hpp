#pragma once

#include <csignal>

namespace troupe::cli {

/// While it exists, SIGINT and SIGTERM do not end the program; arrived() reports them. Create it
/// before starting threads.
class interrupt {
 public:
  interrupt();
  ~interrupt();
  interrupt(const interrupt&) = delete;
  interrupt& operator=(const interrupt&) = delete;

  /// Has a signal arrived? Stays true.
  bool arrived();

 private:
  sigset_t set_{}, before_{};
  bool arrived_ = false;
};

}  // namespace troupe::cli
