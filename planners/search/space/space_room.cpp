#include "planners/search/space/space_room.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace troupe::planners {

space_room::space_room(const space_problem& p)
    : problem_{&p},
      units_(std::size_t{p.datacenters} * p.kinds.size() * degrees),
      gpus_(p.kinds.size()) {
  std::vector<std::uint32_t> largest(p.kinds.size());
  for (const auto& c : p.classes) largest[c.kind] = std::max(largest[c.kind], c.tensor);
  for (const auto& pool : p.pools) {
    auto* of = &units_[(pool.datacenter * p.kinds.size() + pool.kind) * degrees];
    for (const auto free : pool.free) {
      gpus_[pool.kind] += free;
      for (std::uint32_t d = 0; d < degrees; ++d) of[d] += free >> d;
    }
    for (std::uint32_t d = 0; (1U << d) <= largest[pool.kind]; ++d) {
      // All nodes have whole units of it: the limit by GPUs says the same.
      if (d > 0 && of[d] << d == of[0]) continue;
      limits_.push_back({pool.datacenter, pool.kind, 1U << d, of[d]});
    }
  }
}

bool space_room::has(const space_seat& s) const {
  const auto& c = problem_->classes[s.cls];
  return units(s.datacenter, c.kind, static_cast<std::uint32_t>(std::countr_zero(c.tensor))) > 0;
}

std::uint32_t space_room::copies(std::uint32_t datacenter,
                                 const std::vector<std::uint32_t>& classes) const {
  std::uint32_t fewest = std::numeric_limits<std::uint32_t>::max(), found = 0;
  for (const auto& l : limits_) {
    if (l.datacenter != datacenter) continue;
    std::uint32_t used = 0;
    for (const auto c : classes) used += use(l, {c, datacenter});
    if (used > 0) fewest = std::min(fewest, l.units / used);
  }
  // Stages on GPUs that the datacenter does not have are subject to no limit.
  for (const auto c : classes) found += has({c, datacenter}) ? 1 : 0;
  return found == classes.size() ? fewest : 0;
}

bool space_room::holds(const space_plan& plan) const {
  for (const auto& g : plan.groups)
    for (const auto& s : g.seats)
      if (!has(s)) return false;
  return std::ranges::all_of(limits_, [&](const limit& l) {
    std::uint64_t used = 0;
    for (const auto& g : plan.groups)
      for (const auto& s : g.seats) used += std::uint64_t{g.pipelines} * use(l, s);
    return used <= l.units;
  });
}

}  // namespace troupe::planners
