#include "planners/pipeline/stage_cut.hpp"

#include <algorithm>
#include <utility>

// A trial asks whether no stage need take longer than a limit. It keeps, for each set of used
// stages, how many pieces from the front they can have done. Where every stage could take any one
// piece within the limit, the largest number is all that counts: whoever has less left to do is
// never worse off. Else a stage may be forced onto a piece that is too much for it, and all numbers
// are kept.

namespace troupe::planners {
namespace {

/// The longest range from `first` on within the limit, at most `most`; 0: not even one piece.
std::uint32_t longest(const range_cost& cost, std::size_t kind, std::uint32_t first,
                      std::uint32_t most, std::uint32_t behind, double limit) {
  std::uint32_t low = 0, high = most;
  while (low < high) {
    const auto middle = low + (high - low + 1) / 2;
    if (cost(kind, first, middle, behind) <= limit)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/// Sets of used stages are numbered in mixed radix.
class trial {
 public:
  trial(const std::vector<std::uint32_t>& counts, std::uint32_t pieces, const range_cost& cost)
      : counts_{counts}, pieces_{pieces}, cost_{cost} {
    std::size_t sets = 1;
    for (const auto n : counts) {
      weights_.push_back(sets);
      sets *= n + 1;
      stages_ += n;
    }
    reached_.resize(sets);
    used_.resize(sets);
    for (std::size_t set = 1; set < sets; ++set)
      for (std::size_t k = 0; k < counts.size(); ++k) used_[set] += used_of(set, k);
    for (std::size_t k = 0; k < counts.size(); ++k)
      for (std::uint32_t i = 0; i < pieces && counts[k] > 0; ++i)
        for (std::uint32_t b = 0; b < stages_; ++b)
          dearest_piece_s_ = std::max(dearest_piece_s_, cost(k, i, 1, b));
  }

  std::uint32_t stages() const { return stages_; }

  bool within(double limit) {
    limit_ = limit;
    const bool most_alone = dearest_piece_s_ <= limit;
    reached_[0] = {0};
    for (std::size_t set = 1; set < reached_.size(); ++set) extend(set, most_alone);
    const auto& all = reached_.back();
    return !all.empty() && all.back() == pieces_;
  }

  /// Of the last trial, which was within its limit.
  std::vector<cut_stage> stages_of() const {
    std::vector<cut_stage> out;
    auto done = pieces_;
    for (auto set = reached_.size() - 1; set > 0;) {
      const auto [kind, before] = last_stage(set, done);
      out.push_back({kind, done - before});
      set -= weights_[kind];
      done = before;
    }
    std::ranges::reverse(out);
    return out;
  }

 private:
  std::uint32_t used_of(std::size_t set, std::size_t kind) const {
    return static_cast<std::uint32_t>(set / weights_[kind] % (counts_[kind] + 1));
  }
  std::uint32_t behind(std::size_t set) const { return stages_ - used_[set]; }

  /// What the set's stages can have done, if one of kind `kind` goes on from `from`: [from + 1,
  /// ...].
  std::uint32_t furthest(std::size_t set, std::size_t kind, std::uint32_t from) const {
    if (from + 1 + behind(set) > pieces_) return from;  // the others need a piece each
    return from + longest(cost_, kind, from, pieces_ - from - behind(set), behind(set), limit_);
  }

  void extend(std::size_t set, bool most_alone) {
    auto& to = reached_[set];
    to.clear();
    for (std::size_t k = 0; k < counts_.size(); ++k) {
      if (used_of(set, k) == 0) continue;
      for (const auto from : reached_[set - weights_[k]])
        for (auto n = furthest(set, k, from); n > from; n = most_alone ? from : n - 1)
          to.push_back(n);
    }
    std::ranges::sort(to);
    to.erase(std::unique(to.begin(), to.end()), to.end());
    if (most_alone && to.size() > 1) to.erase(to.begin(), to.end() - 1);
  }

  /// The kind of a set's last stage, and what was done before it.
  std::pair<std::size_t, std::uint32_t> last_stage(std::size_t set, std::uint32_t done) const {
    for (std::size_t k = 0; k < counts_.size(); ++k) {
      if (used_of(set, k) == 0) continue;
      for (const auto from : reached_[set - weights_[k]])
        if (from < done && done <= furthest(set, k, from)) return {k, from};
    }
    return {};  // not of a set that has been reached
  }

  const std::vector<std::uint32_t>& counts_;
  std::uint32_t pieces_, stages_ = 0;
  const range_cost& cost_;
  double limit_ = 0, dearest_piece_s_ = 0;
  std::vector<std::size_t> weights_;
  std::vector<std::vector<std::uint32_t>> reached_;  // by set, ascending
  std::vector<std::uint32_t> used_;                  // stages of each set
};

stage_cut with_slowest(std::vector<cut_stage> stages, const range_cost& cost) {
  stage_cut out{0, std::move(stages)};
  std::uint32_t first = 0;
  for (std::size_t s = 0; s < out.stages.size(); ++s) {
    const auto& x = out.stages[s];
    const auto behind = static_cast<std::uint32_t>(out.stages.size() - s - 1);
    out.slowest_s = std::max(out.slowest_s, cost(x.kind, first, x.pieces, behind));
    first += x.pieces;
  }
  return out;
}

}  // namespace

stage_cut cut_for(const std::vector<std::uint32_t>& counts, std::uint32_t pieces,
                  const range_cost& cost) {
  constexpr double accuracy = 1e-6;
  trial t{counts, pieces, cost};
  if (t.stages() == 0 || t.stages() > pieces) return {};
  if (!t.within(std::numeric_limits<double>::max())) return {};
  auto best = with_slowest(t.stages_of(), cost);
  for (double low = 0; best.slowest_s - low > accuracy * best.slowest_s;) {
    const double middle = low + (best.slowest_s - low) / 2;
    if (t.within(middle))
      best = with_slowest(t.stages_of(), cost);
    else
      low = middle;
  }
  return best;
}

}  // namespace troupe::planners
