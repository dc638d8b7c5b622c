#include "planners/search/sailor_times.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe::harness {

using namespace planners;

namespace {
constexpr double impossible_s = std::numeric_limits<double>::infinity();
}  // namespace

space_problem sailor_problem(const std::vector<sailor_pool>& pools, const std::string& space) {
  space_problem p;
  p.pieces = sailor_formula::layers;
  p.samples = sailor_formula::batch;
  p.rows = {1, 2, 4, 8};
  p.kinds = {{sailor_formula::dollars_per_hour(0)}, {sailor_formula::dollars_per_hour(1)}};
  for (std::uint32_t k = 0; k < 2; ++k)
    for (const auto t : {1U, 2U, 4U}) p.classes.push_back({k, t});
  std::vector<std::uint32_t> zones;
  for (const auto& pool : pools) {
    if (std::ranges::find(zones, pool.zone) == zones.end()) zones.push_back(pool.zone);
    p.pools.push_back({pool.kind, pool.zone, std::vector(pool.gpus / 4, 4U)});
    if (pool.gpus % 4 > 0) p.pools.back().free.push_back(pool.gpus % 4);
  }
  p.datacenters = *std::ranges::max_element(zones) + 1;
  // Classes of kinds that are nowhere.
  for (std::uint32_t k = 0; k < 2; ++k)
    if (std::ranges::none_of(pools, [&](const auto& x) { return x.kind == k; }))
      std::erase_if(p.classes, [&](const auto& c) { return c.kind == k; });
  p.space = space_named(space).value();
  return p;
}

sailor_times::sailor_times(const sailor_formula& formula, const space_problem& problem)
    : formula_{formula}, problem_{problem} {
  for (const auto& pool : problem.pools)
    for (const auto& c : problem.classes)
      if (c.kind == pool.kind) seats_.push_back({c.kind, c.tensor, pool.datacenter});
  for (const auto rows : problem.rows)
    for (std::uint32_t c = 0; c < problem.classes.size(); ++c) set_sends(rows, c);
}

void sailor_times::set_sends(std::uint32_t rows, std::uint32_t cls) {
  const auto& c = problem_.classes[cls];
  auto& out = sends_[{rows, cls}];
  out = {impossible_s, {impossible_s, impossible_s}};
  for (const auto& at : seats_) {
    if (at.kind != c.kind || at.tensor != c.tensor) continue;
    for (const auto& other : seats_) {
      // A first stage of two sends its activation once, a last one its gradient twice.
      out.act_s = std::min(out.act_s, formula_.sends_s(rows, 0, 1, at, {nullptr, &other, 2}));
      for (const std::uint32_t head : {0, 1})
        out.grad_s[head] = std::min(
            out.grad_s[head], formula_.sends_s(rows, head ? sailor_formula::layers - 1 : 1,
                                               sailor_formula::layers, at, {&other, nullptr, 2}) /
                                  2);
    }
  }
}

sailor_seat sailor_times::seat_of(const space_seat& s) const {
  const auto& c = problem_.classes[s.cls];
  return {c.kind, c.tensor, s.datacenter};
}

space_times::stage_floor sailor_times::floor_of(std::uint32_t rows, std::uint32_t cls,
                                                std::uint32_t first, std::uint32_t count,
                                                std::uint32_t behind) const {
  const auto end = first + count;
  const auto& c = problem_.classes[cls];
  const sailor_seat at{c.kind, c.tensor, 0};
  if (!formula_.fits(rows, first, end, at, behind)) return {impossible_s, impossible_s};
  const auto& k = sends_.at({rows, cls});
  const double grad_s = k.grad_s[first + 1 == sailor_formula::layers ? 1 : 0];
  double s = formula_.work_s(rows, first, end, at);
  if (first == 0 && behind > 0) s += behind < 3 ? k.act_s : 2 * k.act_s;
  if (first > 0) s += behind > 0 ? k.act_s + grad_s : 2 * grad_s;
  return {s, s};
}

double sailor_times::tail_floor_s(std::uint32_t /*rows*/, std::uint32_t cls, std::uint32_t first,
                                  std::uint32_t count, std::uint32_t pipelines) const {
  const auto& c = problem_.classes[cls];
  const auto [sum, added] = sums_.try_emplace({cls, first, count, pipelines}, impossible_s);
  if (added)
    for (const auto& at : seats_)
      for (const auto& other : seats_)
        if (at.kind == c.kind && at.tensor == c.tensor)
          sum->second = std::min(
              {sum->second, formula_.pair_s(first, first + count, c.tensor, at, other, pipelines),
               formula_.pair_s(first, first + count, c.tensor, other, at, pipelines)});
  return sum->second;
}

double sailor_times::line_s(const space_line& line, std::uint32_t microbatches) const {
  const auto stages = static_cast<std::uint32_t>(line.firsts.size());
  std::vector<sailor_seat> seats;
  for (const auto& s : line.seats) seats.push_back(seat_of(s));
  double all = 0, slowest = 0, update = 0;
  for (std::uint32_t i = 0; i < stages; ++i) {
    const auto first = line.firsts[i], end = i + 1 < stages ? line.firsts[i + 1] : problem_.pieces;
    if (!formula_.fits(line.rows, first, end, seats[i], stages - 1 - i)) return impossible_s;
    const double s = formula_.work_s(line.rows, first, end, seats[i]) +
                     formula_.sends_s(line.rows, first, end, seats[i],
                                      {i > 0 ? &seats[i - 1] : nullptr,
                                       i + 1 < stages ? &seats[i + 1] : nullptr, stages});
    all += s, slowest = std::max(slowest, s);
    update = std::max(update, formula_.update_s(line.rows, first, seats[i]));
  }
  return all + (microbatches - 1) * slowest + update;
}

sailor_plan sailor_times::sailor_plan_of(const space_plan& plan) const {
  sailor_plan out{plan.rows, plan.firsts, {}};
  for (const auto& g : plan.groups) {
    auto& to = out.groups.emplace_back(sailor_group{g.pipelines, g.microbatches, {}});
    for (const auto& s : g.seats) to.seats.push_back(seat_of(s));
  }
  return out;
}

space_value sailor_times::value(const space_plan& plan) const {
  const auto v = formula_.value(sailor_plan_of(plan));
  if (!v.fits) return {};
  return {v.seconds, v.dollars};
}

}  // namespace troupe::harness
