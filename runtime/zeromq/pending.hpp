#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::runtime {

/// Connections that a listener has accepted and that have not been welcomed. ZeroMQ bounds neither
/// how many there are nor, below the size that tensors need, what each may send before it has
/// proven anything. This cuts those that send more than any greeting takes, and beyond a number the
/// oldest; an honest peer connects again.
class pending_connections {
 public:
  static constexpr std::size_t max = 512;
  static constexpr std::uint64_t max_bytes = std::uint64_t{1} << 20;
  static constexpr int look_every_ms = 20;

  /// By the descriptor, as ZeroMQ's monitor and messages report it.
  void accepted(int descriptor);
  void ended(int descriptor);
  void welcomed(int descriptor) { ended(descriptor); }

  bool empty() const { return all_.empty(); }

  /// Looks at all of them. Gives how many it has cut.
  std::size_t cut();

 private:
  struct entry {
    int descriptor = -1;
    std::string peer;  // its address: a descriptor that is closed may be another's by now
  };
  std::vector<entry> all_;  // the oldest first
};

}  // namespace troupe::runtime
