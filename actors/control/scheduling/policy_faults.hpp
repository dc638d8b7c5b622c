#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::actors {

/// Faults of a policy, in whose rounds nothing is decided. Each event asks a policy anew: the log
/// has the same fault once a minute.
class policy_faults {
 public:
  void on_fault(const std::string& why, double now_s);
  /// It has decided.
  void on_decided();

  /// For `explain`; empty: its last round has decided.
  std::string sentence() const;

 private:
  struct fault {
    std::string why;
    std::uint64_t rounds = 0;  // in a row
    double logged_s = 0;
  };
  std::optional<fault> fault_;
};

}  // namespace troupe::actors
