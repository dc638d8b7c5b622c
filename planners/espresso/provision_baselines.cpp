#include "planners/espresso/provision_baselines.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "messages/base/folds.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/espresso/cmr_placer.hpp"

namespace troupe::planners {
namespace {

/// The types of the set's stages, smallest `rank` first.
template <class Rank>
std::vector<std::size_t> in_order_of(const stage_counts& counts, Rank&& rank) {
  std::vector<std::size_t> order;
  for (std::size_t t = 0; t < counts.size(); ++t) order.insert(order.end(), counts[t], t);
  std::ranges::stable_sort(order, {}, rank);
  return order;
}

/// Sia+ considers one type, and a power of two of GPUs.
bool is_sias(const division& d, const stage_counts& counts) {
  const auto stages = std::accumulate(counts.begin(), counts.end(), 0U);
  return stages == std::ranges::max(counts) && std::has_single_bit(d.gpus(stages));
}

/// Whale+: stages in the order of memory, each with its share of the remaining pieces by speed;
/// what it cannot hold is left for those behind it, and at least one piece for each of them.
set_plan balanced(stage_placer& placer, const cluster& c, std::size_t division,
                  const stage_counts& counts) {
  const auto p = placer.problem_of(division, counts);
  if (!p || p->stages() > p->table->pieces()) return {};
  const auto& d = placer.divisions()[division];
  const auto gpu = [&](std::size_t t) -> const gpu_type& { return c.gpus[d.types[t].gpu]; };
  const auto order = in_order_of(counts, [&](std::size_t t) { return -gpu(t).memory_gb; });
  double speed = sum_of(order, [&](std::size_t t) { return flops_s(gpu(t)); });
  std::vector<cut_stage> stages;
  std::uint32_t done = 0;
  for (std::size_t s = 0; s < order.size(); ++s) {
    const auto t = order[s];
    const auto behind = static_cast<std::uint32_t>(order.size() - s - 1);
    auto n = p->table->pieces() - done - behind;
    if (behind > 0) {
      const auto fair = std::round(flops_s(gpu(t)) / speed * (p->table->pieces() - done));
      n = std::min(n, std::max(1U, static_cast<std::uint32_t>(fair)));
      const auto holds = [&](std::uint32_t count) {
        const auto& k = p->table->middle(t, done, count);
        return k.bytes + p->held[behind] * k.bytes_each < p->bytes[t];
      };
      while (n > 1 && !holds(n)) --n;
    }
    speed -= flops_s(gpu(t));
    stages.push_back({t, n});
    done += n;
  }
  return placer.plan_of(division, stages);
}

}  // namespace

std::optional<provision_placer> provision_placer_named(std::string_view name) {
  for (const auto& [known, placer] : provision_placers)
    if (name == known) return placer;
  return {};
}

set_plan place_with(provision_placer how, stage_placer& placer, const cluster& c,
                    std::size_t division, const stage_counts& counts, double limit_s,
                    const cut_effort& effort) {
  const auto& d = placer.divisions()[division];
  switch (how) {
    case provision_placer::greedy:
      return place_by_ratio(placer, c, division, counts);
    case provision_placer::whale:
      return balanced(placer, c, division, counts);
    case provision_placer::sia:
      return is_sias(d, counts) ? placer.place(division, counts, limit_s) : set_plan{};
    case provision_placer::hph:
      return placer.place(
          division, counts, limit_s,
          in_order_of(counts, [&](std::size_t t) { return flops_s(c.gpus[d.types[t].gpu]); }),
          fidelity::closed);
    case provision_placer::exact:
      break;
  }
  return placer.place(division, counts, limit_s, {}, {}, effort);
}

}  // namespace troupe::planners
