#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// A tensor-parallel group of threads of one program, from the view of one member. Every member
/// must request the same sums in the same order.
class thread_communicator {
 public:
  virtual ~thread_communicator() = default;

  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;

  /// Replaces `values` by the sums over all members, added in the order of their ranks: bitwise
  /// equal for every member and in every run. Blocks until all members have called it; fails with a
  /// text if one does not in time, or has left.
  virtual expected<void> sum(std::span<float> values) = 0;

  /// Fails all present and later waits with this reason. From any thread.
  virtual void abort(const std::string& why) = 0;
  virtual double patience_s() const = 0;
};

/// The members of a group of threads, by rank.
std::vector<std::shared_ptr<thread_communicator>> make_group(std::uint32_t size,
                                                             double patience_s = 600);

}  // namespace troupe::gpu
