#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "actors/training/collectives/host_all_reduce.hpp"
#include "messages/base/refuse.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// A state on its way: in parts, each of which is asked for when the one before is here.
inline constexpr std::uint64_t state_part_bytes = std::uint64_t{64} << 20;
inline constexpr std::uint32_t max_state_parts = 1U << 16;

inline std::uint32_t number_of_parts(const payload& state, std::uint64_t each = state_part_bytes) {
  const auto size = state.bytes().size();
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (size + each - 1) / each));
}

/// REQUIRES: the state has that part. One without bytes is simulated, and is its only part.
inline payload part_of_state(const payload& state, std::uint32_t part,
                             std::uint64_t each = state_part_bytes) {
  const auto first = part * each;
  return slice(state, first, std::min(each, state.bytes().size() - first));
}

/// The parts that have arrived, in their order.
class state_parts {
 public:
  std::uint32_t next() const { return static_cast<std::uint32_t>(parts_.size()); }
  bool is_complete() const { return count_ > 0 && parts_.size() == count_; }

  /// Duplicates, and what was not asked for, are ignored. Fails if the peer cannot give its state,
  /// or parts contradict each other. True: it is the next one.
  expected<bool> add(const tensor& t, payload body) {
    if (is_complete() || t.microbatch != next()) return false;
    const auto count = t.parts.value_or(0);
    if (count == 0)
      return refuse(reason::kind::unavailable, "pipeline {} cannot give its state",
                    t.from.pipeline);
    if (count > max_state_parts || (count_ > 0 && count != count_))
      return refuse(reason::kind::malformed, "a state of {} parts, {} before", count, count_);
    count_ = count;
    parts_.push_back(std::move(body));
    return true;
  }

  /// REQUIRES: is_complete().
  payload take() {
    auto all = std::exchange(parts_, {});
    count_ = 0;
    if (all.size() == 1) return std::move(all.front());
    std::vector<std::byte> whole;
    for (const auto& p : all) whole.insert(whole.end(), p.bytes().begin(), p.bytes().end());
    return payload{std::move(whole)};
  }

 private:
  std::vector<payload> parts_;
  std::uint32_t count_ = 0;  // 0: none has arrived
};

}  // namespace troupe::actors
