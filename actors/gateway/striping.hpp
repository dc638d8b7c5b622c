#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "messages/base/time.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Splits a tensor's body into `count` stripes of nearly equal size: stripe i has the bytes
/// [size i / count, size (i + 1) / count).
struct cut_body {
  std::uint64_t size = 0;
  std::uint32_t count = 1;

  std::uint64_t begin(std::uint32_t i) const { return size / count * i + size % count * i / count; }
  /// Shares the bytes (no copy).
  payload piece(const payload& whole, std::uint32_t i) const;
};

/// How a tensor is split: into `parts` that cross the link one after the other, and each part into
/// one stripe per lane. Its path (wan_path) has a lane for each connection of each node pair; small
/// tensors use fewer. Parts bound the size of a stripe.
struct stripe_layout {
  std::uint32_t first_lane = 1, lanes = 1, parts = 1;

  static constexpr std::uint64_t max_stripe_bytes = 512 << 10;  // approximate
  static constexpr std::uint64_t min_stripe_bytes = 4096;
  static constexpr std::uint32_t max_lanes = 1024;
};
stripe_layout layout_of(const tensor& t, std::uint32_t max_parts);

/// Numbers the tensors of each flow (from one stage to another) in the order in which they start to
/// cross. A flow that was forgotten starts again at 0 in a larger epoch, so that the receiver never
/// mixes up two tensors.
class stripe_numbers {
 public:
  struct number {
    std::uint64_t epoch = 0, transfer = 0;
  };
  number next(time_ns now, const tensor& t);
  void forget(time_ns before);

 private:
  struct flow {
    number next;
    time_ns last_used = 0;
  };
  using flow_key = std::tuple<lease_id, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  std::map<flow_key, flow> flows_;
};

}  // namespace troupe::actors
