#include "actors/control/ledger/records.hpp"

#include <algorithm>

namespace troupe::actors {

namespace {

std::size_t index_in(const job_union& all, job_id member) {
  return static_cast<std::size_t>(std::ranges::lower_bound(all.jobs, member) - all.jobs.begin());
}

}  // namespace

std::uint64_t iterations_in_union(const job_record& of_union, job_id member, std::uint64_t done) {
  const auto& all = *of_union.members;
  return member_iterations(all.kind, all.work, done)[index_in(all, member)];
}

double end_in_union(const job_record& of_union, job_id member) {
  const auto& all = *of_union.members;
  return member_end(all.kind, all.work, index_in(all, member));
}

}  // namespace troupe::actors
