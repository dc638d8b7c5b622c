#include "actors/control/ledger/records.hpp"

#include <algorithm>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

namespace {

std::size_t index_in(const job_union& all, job_id member) {
  const auto at = std::ranges::lower_bound(all.jobs, member);
  TROUPE_INVARIANT(at != all.jobs.end() && *at == member, "a member is one of its union");
  return static_cast<std::size_t>(at - all.jobs.begin());
}

}  // namespace

std::uint64_t iterations_in_union(const job_record& of_union, job_id member, std::uint64_t done) {
  TROUPE_INVARIANT(of_union.members, "iterations in a union are of one with members");
  const auto& all = *of_union.members;
  return member_iterations(all.kind, all.work, done)[index_in(all, member)];
}

double end_in_union(const job_record& of_union, job_id member) {
  const auto& all = *of_union.members;
  return member_end(all.kind, all.work, index_in(all, member));
}

}  // namespace troupe::actors
