#include "planners/search/space/shares.hpp"

#include <algorithm>
#include <limits>

namespace troupe::planners {

namespace {

/// Seconds of one line by its number of micro-batches, each asked for once.
class line_clock {
 public:
  line_clock(const space_times& times, space_line line, std::uint32_t max)
      : times_{&times}, line_{std::move(line)}, known_(max + 1, -1) {}

  double at(std::uint32_t m) {
    if (m >= known_.size()) return std::numeric_limits<double>::infinity();
    if (known_[m] < 0) known_[m] = m == 0 ? 0 : times_->line_s(line_, m);
    return known_[m];
  }
  /// The largest number of micro-batches that take no longer than that.
  std::uint32_t within(double s) {
    std::uint32_t low = 0, high = static_cast<std::uint32_t>(known_.size()) - 1;
    while (low < high) {
      const auto middle = (low + high + 1) / 2;
      if (at(middle) <= s)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

 private:
  const space_times* times_;
  space_line line_;
  std::vector<double> known_;
};

struct dealer {
  std::vector<line_clock> clocks;
  const std::vector<line_count>& lines;
  std::uint32_t microbatches = 0;

  std::uint64_t within(double s) {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) n += lines[i].pipelines * clocks[i].within(s);
    return n;
  }
  /// A time within which all can be done, and nearly the shortest such.
  double shortest_s() {
    double low = 0, high = 0;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (lines[i].pipelines > 0) high = std::max(high, clocks[i].at(microbatches));
    for (int i = 0; i < 40 && low < high; ++i) {
      const double middle = (low + high) / 2;
      (within(middle) >= microbatches ? high : low) = middle;
    }
    return high;
  }
};

}  // namespace

std::optional<space_plan> dealt_plan(const space_times& times, std::uint32_t rows,
                                     std::uint32_t microbatches,
                                     const std::vector<std::uint32_t>& firsts,
                                     const std::vector<line_count>& lines, bool own_shares) {
  space_plan plan{rows, firsts, {}};
  std::uint32_t pipelines = 0;
  for (const auto& l : lines) pipelines += l.pipelines;
  if (pipelines == 0 || pipelines > microbatches) return {};
  if (!own_shares) {
    if (microbatches % pipelines != 0) return {};
    for (const auto& l : lines)
      if (l.pipelines > 0) plan.groups.push_back({l.pipelines, microbatches / pipelines, l.seats});
    return plan;
  }
  dealer deal{{}, lines, microbatches};
  for (const auto& l : lines)
    deal.clocks.emplace_back(times, space_line{rows, firsts, l.seats}, microbatches);
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (lines[i].pipelines > 0 && !(deal.clocks[i].at(1) < std::numeric_limits<double>::infinity()))
      return {};
  // Every pipeline has a micro-batch; of what is over, the slowest ends are taken back.
  const double s = deal.shortest_s();
  std::vector<std::uint32_t> share(lines.size()), fewer(lines.size());
  std::uint64_t dealt = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    share[i] = std::max(1U, deal.clocks[i].within(s));
    dealt += std::uint64_t{lines[i].pipelines} * share[i];
  }
  while (dealt > microbatches) {
    std::size_t slowest = lines.size();
    double slowest_s = -1;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto m = fewer[i] < lines[i].pipelines ? share[i] : share[i] - 1;
      if (lines[i].pipelines == 0 || m <= 1) continue;
      if (deal.clocks[i].at(m) > slowest_s) slowest_s = deal.clocks[i].at(m), slowest = i;
    }
    if (slowest == lines.size()) return {};
    if (fewer[slowest] == lines[slowest].pipelines) --share[slowest], fewer[slowest] = 0;
    ++fewer[slowest], --dealt;
  }
  if (dealt < microbatches) return {};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (const auto n = lines[i].pipelines - fewer[i]; n > 0)
      plan.groups.push_back({n, share[i], lines[i].seats});
    if (fewer[i] > 0) plan.groups.push_back({fewer[i], share[i] - 1, lines[i].seats});
  }
  return plan;
}

}  // namespace troupe::planners
