#include "messages/domain/job_union.hpp"

#include <algorithm>
#include <cmath>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"

namespace troupe {

std::uint64_t union_iterations(merge_kind kind, std::span<const member_work> members) {
  return kind == merge_kind::shared ? max_of(members, std::uint64_t{0}, &member_work::iterations)
                                    : sum_of(members, &member_work::iterations);
}

namespace {

/// A part of an iteration: quotients that are whole numbers may be slightly smaller.
constexpr double rounding = 1e-6;
std::uint64_t whole(double iterations) {
  return static_cast<std::uint64_t>(iterations + rounding);
}

/// Complete rounds of members, the shortest ones leaving first: a round has an iteration of each
/// that is left. `done`: samples.
std::vector<std::uint64_t> after_rounds(std::span<const member_work> members, double done) {
  auto order = indices(members.size());
  std::ranges::sort(order, {}, [&](std::size_t m) { return members[m].iterations; });
  double of_a_round = sum_of(members, [](const member_work& m) { return double{1} * m.batch; });
  std::uint64_t rounds = 0;
  for (const auto m : order) {
    const auto longer = members[m].iterations - rounds;
    const double needed = static_cast<double>(longer) * of_a_round;
    if (needed > done + of_a_round * rounding) {
      rounds += whole(done / of_a_round);
      break;
    }
    done -= needed;
    rounds += longer;
    of_a_round -= members[m].batch;
  }
  TROUPE_INVARIANT(done >= -1, "rounds of a union do not use more samples than were done");
  return mapped(members, [&](const member_work& m) { return std::min(m.iterations, rounds); });
}

double samples_of(std::span<const member_work> members) {
  return sum_of(members,
                [](const member_work& m) { return static_cast<double>(m.iterations) * m.batch; });
}

}  // namespace

std::vector<std::uint64_t> member_iterations(merge_kind kind, std::span<const member_work> members,
                                             std::uint64_t done) {
  const auto all = union_iterations(kind, members);
  if (done >= all) return mapped(members, &member_work::iterations);
  const double share = static_cast<double>(done) / static_cast<double>(all);
  if (kind == merge_kind::shared)
    return mapped(members, [&](const member_work& m) {
      return whole(static_cast<double>(m.iterations) * share);
    });
  return after_rounds(members, samples_of(members) * share);
}

double member_end(merge_kind kind, std::span<const member_work> members, std::size_t member) {
  const double all = samples_of(members);
  if (kind == merge_kind::shared || !(all > 0)) return 1;
  const auto rounds = members[member].iterations;
  return sum_of(members,
                [&](const member_work& m) {
                  return static_cast<double>(std::min(m.iterations, rounds)) * m.batch;
                }) /
         all;
}

}  // namespace troupe
