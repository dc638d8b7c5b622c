#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::actors {

/// Branches of the lease manager that few runs come to: the tests of simulations say which of them
/// their seeds have reached.
enum class rare_branch : std::uint8_t {
  refused_union,
  revoked_again,
  earlier_process,
  never_began,
  controller_away,
  unable_node,
  late_success,
  part_of_late_success,
  member_done,
  member_left,
  no_member_left,
  rest_revoked,
  rank_waited,
  healed_part,
  left_behind
};

/// In the order of rare_branch.
inline constexpr std::array<std::string_view, 15> rare_branches{
    "the ledger refuses the lease of a new union",
    "a revoked lease is revoked again, for another reason",
    "a lease was granted to an earlier process of its node",
    "a part ends that its node never began",
    "a node stopped its work while no controller ran",
    "a node that takes no work did not start its part",
    "a lost lease had succeeded",
    "a part of a lost lease had succeeded",
    "a member of a union is done before the others",
    "a union ends because a member left",
    "a union ends because all members have left",
    "a part that failed ends the others",
    "a rank is waited for no longer",
    "a training goes on without a part that was lost",
    "a training has ended that had left a part behind"};

/// A bit for each that this process has come to.
inline std::atomic<std::uint32_t> reached_branches{0};

inline void mark(rare_branch b) {
  reached_branches.fetch_or(1U << static_cast<std::size_t>(b), std::memory_order_relaxed);
}

}  // namespace troupe::actors
