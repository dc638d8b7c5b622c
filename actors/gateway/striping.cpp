#include "actors/gateway/striping.hpp"

#include <algorithm>

#include "messages/base/invariant.hpp"
#include "runtime/host/transport.hpp"

namespace troupe::actors {

payload cut_body::piece(const payload& whole, std::uint32_t i) const {
  const auto from = begin(i);
  TROUPE_INVARIANT(from <= begin(i + 1) && begin(i + 1) <= whole.bytes().size(),
                   "a piece lies within its body");
  return {whole.owner(), whole.bytes().subspan(from, begin(i + 1) - from)};
}

/// A stripe for each connection of the path, as long as each has min_stripe_bytes: below that the
/// fixed cost of a frame exceeds the gain. More than max_stripe_bytes a stripe would block the lane
/// for others.
stripe_layout layout_of(const tensor& t, std::uint32_t max_parts) {
  using u64 = std::uint64_t;
  stripe_layout l;
  l.first_lane = runtime::tensor_lane + t.path.first_pair * t.path.connections;
  const auto max = std::clamp<u64>(t.bytes / l.min_stripe_bytes, 1, l.max_lanes);
  const auto lanes = u64{t.path.pairs} * std::max(1U, t.path.connections);
  l.lanes = static_cast<std::uint32_t>(std::clamp<u64>(lanes, 1, max));
  l.parts = static_cast<std::uint32_t>(
      std::clamp<u64>(t.bytes / (l.lanes * l.max_stripe_bytes), 1, max_parts));
  return l;
}

stripe_numbers::number stripe_numbers::next(time_ns now, const tensor& t) {
  auto& f = flows_[{t.from.lease, t.from.pipeline, t.from.stage, t.to_pipeline, t.to_stage}];
  f.last_used = now;
  // The time as epoch: monotonic within a gateway's life, so that a flow that was forgotten and
  // comes back never repeats a number. After a restart of the gateway the clock has gone on as
  // well.
  if (f.next.epoch == 0) f.next.epoch = static_cast<std::uint64_t>(now) + 1;
  TROUPE_INVARIANT(f.next.epoch > 0, "the stripes of a flow have an epoch");
  const auto result = f.next;
  ++f.next.transfer;
  return result;
}

void stripe_numbers::forget(time_ns before) {
  std::erase_if(flows_, [&](const auto& f) { return f.second.last_used < before; });
}

}  // namespace troupe::actors
