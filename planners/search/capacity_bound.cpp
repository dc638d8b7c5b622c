#include "planners/search/capacity_bound.hpp"

#include <algorithm>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/time.hpp"

namespace troupe::planners {

capacity_bound::capacity_bound(const stage_table& table, const std::vector<double>& bytes,
                               const std::vector<std::uint32_t>& held)
    : needed_{table.size()} {
  TROUPE_INVARIANT(table.homogeneous(), "the capacity bound is for homogeneous stages");
  const auto size = table.size();
  const auto stages = static_cast<std::uint32_t>(held.size());
  for (std::uint32_t behind = 0; behind < stages; ++behind) {
    positions at{1, {}, {}};
    for (std::size_t t = 0; t < table.types(); ++t) {
      const auto fits = [&](const range_costs& k) {
        return k.bytes + held[behind] * k.bytes_each < bytes[t];
      };
      // Larger ranges need more memory (homogeneous), so the first one that does not fit ends it.
      std::uint32_t max = 0;
      if (behind == 0)
        while (max < size && fits(table.last(t, size - max - 1))) ++max;
      // Only the first stage begins with the embedding; others do with either kind of piece.
      const std::uint32_t from = behind + 1 == stages ? 0 : 1, to = from == 0 ? 1 : 3;
      for (auto first = from; behind > 0 && first < to; ++first)
        while (first + max + 1 < size && fits(table.middle(t, first, max + 1))) ++max;
      at.pieces.push_back(max);
    }
    if (!positions_.empty() && positions_.back().pieces == at.pieces) {
      ++positions_.back().stages;
      continue;
    }
    at.largest = indices(table.types());
    std::ranges::stable_sort(at.largest, std::greater{}, [&](auto t) { return at.pieces[t]; });
    positions_.push_back(std::move(at));
  }
}

// The exact maximum is an assignment of types to positions, which would have to be solved for each
// of the 10^5 to 10^6 sets that a search looks at. Adding up the memory of all GPUs is cheap, but
// it ignores the micro-batches in flight and lets sets through that no order can hold. This is the
// assignment's dual (docs/planners/plan_search.md, "Memory"): for any prices x of the types, the
// stages hold at most the sum of their types' prices plus, at each position, the largest excess of
// a type's pieces over its price. Every x gives a valid bound, so a few good ones do: the numbers
// that the types hold at one position, tried for each position. The bound is linear in `counts`, so
// the open stages are filled with the largest types and it holds for partial sets, too.
bool capacity_bound::may_hold(const std::vector<std::uint32_t>& counts,
                              const std::vector<std::uint32_t>& open, std::uint32_t missing) {
  std::uint64_t types = 0;
  for (std::size_t t = 0; t < counts.size(); ++t)
    if (counts[t] > 0 || (missing > 0 && open[t] > 0)) types |= std::uint64_t{1} << t;
  const auto& excess = excess_of(types);
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    double max = excess[i];
    for (std::size_t t = 0; t < counts.size(); ++t) max += counts[t] * positions_[i].pieces[t];
    auto left = missing;
    for (const auto t : positions_[i].largest) {
      const auto n = std::min(left, open[t]);
      max += n * positions_[i].pieces[t];
      left -= n;
    }
    if (max < needed_) return false;
  }
  return true;
}

// O(positions^2 * types), once for each set of types that a search meets; positions with the same
// numbers count once, and a deep pipeline has few different ones.
const std::vector<double>& capacity_bound::excess_of(std::uint64_t types) {
  const auto [at, fresh] = excess_.try_emplace(types);
  if (fresh)
    for (const auto& x : positions_) {
      double sum = 0;
      for (const auto& here : positions_) {
        double max = -never;
        for (std::size_t t = 0; t < here.pieces.size(); ++t)
          if (types >> t & 1)
            max = std::max(max, static_cast<double>(here.pieces[t]) - x.pieces[t]);
        sum += here.stages * max;
      }
      at->second.push_back(sum);
    }
  return at->second;
}

}  // namespace troupe::planners
