#include "planners/plans/has.hpp"

#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::planners {
namespace {

// The paper's order of qualifying nodes: idle GPUs, then memory, then name.
struct candidate {
  gpu_index type = 0;
  idle_index::position at = idle_index::none;
  node_index node = 0;
  std::uint32_t idle = 0;
  double memory = 0;
  std::uint32_t name = 0;

  bool found() const { return at != idle_index::none; }
  auto key() const { return std::tuple(idle, memory, name); }
};

candidate look(const idle_index& idle, gpu_index g, idle_index::position at) {
  const auto n = idle.node_at(g, at);
  return {g, at, n, idle.idle(n), idle.memory_bytes(g), idle.name_rank(n)};
}

}  // namespace

// Algorithm 1, first step: plans are in MARP's order, and the first one that the idle
// GPUs can serve wins, whichever GPUs these are.
std::optional<std::size_t> first_servable(const idle_index& idle, std::span<const plan> plans,
                                          double bytes_floor) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double bytes = plans[i].bytes_per_gpu;
    if (bytes <= bytes_floor || plans[i].gpus() > idle.total_idle()) continue;
    if (idle.idle_above(bytes) >= plans[i].gpus()) return i;
  }
  return {};
}

allocation best_fit(const idle_index& idle, std::uint32_t gpus, double bytes) {
  return best_fit(idle, gpus, idle.types_above(bytes));
}

// Algorithm 1, second step: nodes sorted by idle GPUs, memory and name; the first that holds all
// remaining GPUs ends the search, else the last one (with the most idle GPUs) is taken whole. The
// paper sorts all nodes; here each type's nodes are sorted already (idle_index), and a step
// compares one candidate per type. `end` hides the nodes that are taken without changing the index.
allocation best_fit(const idle_index& idle, std::uint32_t gpus, std::span<const gpu_index> types,
                    std::uint32_t group) {
  allocation where;
  // The nodes of each type from this position on are taken: those with the most idle GPUs.
  std::vector<idle_index::position> end(types.size(), idle_index::none);
  while (gpus > 0) {
    candidate best;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const auto at = idle.first_with(types[i], gpus);
      if (at == idle_index::none || at >= end[i]) continue;
      const auto c = look(idle, types[i], at);
      if (!best.found() || c.key() < best.key()) best = c;
    }
    if (best.found()) {
      where.push_back({best.node, gpus});
      break;
    }
    std::size_t of = 0;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const auto at = idle.before(types[i], end[i]);
      if (at == idle_index::none) continue;
      const auto c = look(idle, types[i], at);
      if (!best.found() || c.key() > best.key()) {
        best = c;
        of = i;
      }
    }
    const auto taken = best.found() ? best.idle / group * group : 0;
    if (taken == 0) return {};
    where.push_back({best.node, taken});
    gpus -= taken;
    end[of] = best.at;
  }
  return where;
}

reason why_unserved(const idle_index& idle, std::span<const plan> plans, double bytes_floor) {
  for (const auto& p : plans) {
    if (p.bytes_per_gpu <= bytes_floor) continue;
    return because(reason::kind::insufficient, "needs {} GPUs of at least {:.1f} GB; {} are idle",
                   p.gpus(), p.bytes_per_gpu / bytes_per_gb, idle.idle_above(p.bytes_per_gpu));
  }
  return {reason::kind::infeasible,
          plans.empty()
              ? "no plan fits it"
              : fmt::format("ran out of memory at {:.1f} GB per GPU, and no plan provides more",
                            bytes_floor / bytes_per_gb)};
}

expected<has_choice> has(const cluster&, const idle_index& idle, std::span<const plan> plans,
                         double bytes_floor) {
  if (const auto i = first_servable(idle, plans, bytes_floor)) {
    auto where = best_fit(idle, plans[*i].gpus(), plans[*i].bytes_per_gpu);
    TROUPE_INVARIANT(total_gpus(where) == plans[*i].gpus(),
                     "GPUs that suffice by their number are found one by one");
    return has_choice{*i, std::move(where)};
  }
  return refuse(why_unserved(idle, plans, bytes_floor));
}

}  // namespace troupe::planners
