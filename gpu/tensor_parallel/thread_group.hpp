#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messages/reason.hpp"

namespace troupe::gpu {

/// Devices that share a stage, as one of them sees it: the threads of one program. Every member
/// asks for the same sums in the same order.
class group {
 public:
  virtual ~group() = default;

  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;

  /// values become the sums over all members', added in the order of their ranks: the same bits
  /// for every member, and in every run. Blocks until all have asked; a reason with a text if one
  /// does not in time, or has left.
  virtual reason sum(std::span<float> values) = 0;

  /// Whoever waits, or asks later, is told why. From any thread.
  virtual void abort(const std::string& why) = 0;
  virtual double patience_s() const = 0;
};

/// The members of a group of threads, by rank.
std::vector<std::shared_ptr<group>> make_group(std::uint32_t size, double patience_s = 600);

}  // namespace troupe::gpu
