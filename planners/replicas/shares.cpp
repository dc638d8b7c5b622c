#include "planners/replicas/shares.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "messages/base/refuse.hpp"

namespace troupe::planners {

std::vector<share> in_order(std::vector<share> work) {
  std::ranges::sort(work, {}, [](const share& s) { return std::tuple{s.pipeline, s.first}; });
  std::vector<share> joined;
  for (const auto& s : work) {
    if (s.count == 0) continue;
    const bool follows =
        !joined.empty() && joined.back().pipeline == s.pipeline && joined.back().end() == s.first;
    if (follows)
      joined.back().count += s.count;
    else
      joined.push_back(s);
  }
  return joined;
}

std::vector<piece> pieces_of(const std::vector<share>& work) {
  std::vector<piece> pieces;
  for (const auto& s : in_order(work)) {
    if (s.first == 0) {
      pieces.push_back(s);
      continue;
    }
    for (auto m = s.first; m < s.end(); ++m) pieces.push_back({s.pipeline, m, 1});
  }
  return pieces;
}

expected<std::vector<std::size_t>> fold_plan(const std::vector<piece>& pieces,
                                             std::uint32_t microbatches) {
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return pieces[i].first; });
  std::uint64_t next = 0;
  for (const auto i : order) {
    const auto& p = pieces[i];
    if (p.pipeline != pieces.front().pipeline)
      return refuse(reason::kind::malformed, "pieces of pipelines {} and {} are added as one's",
                    pieces.front().pipeline, p.pipeline);
    if (p.first != next)
      return refuse(reason::kind::malformed, "pipeline {}: {} micro-batch {}", p.pipeline,
                    p.first > next ? "no piece has" : "two pieces have",
                    std::min<std::uint64_t>(p.first, next));
    if (p.count == 0 || (p.first > 0 && p.count != 1))
      return refuse(reason::kind::malformed,
                    "pipeline {}: a piece has {} micro-batches from {} on, expected one",
                    p.pipeline, p.count, p.first);
    next += p.count;
  }
  if (next != microbatches)
    return refuse(reason::kind::malformed, "the pieces have {} micro-batches of {}", next,
                  microbatches);
  return order;
}

}  // namespace troupe::planners
