#include "planners/search/random_space.hpp"

#include <algorithm>
#include <limits>

namespace troupe::harness {

using namespace planners;

namespace {
constexpr double not_possible = std::numeric_limits<double>::infinity();
}  // namespace

random_space::random_space(random_source& rng) {
  problem.pieces = static_cast<std::uint32_t>(2 + rng.below(3));
  for (std::uint32_t i = 0; i < problem.pieces; ++i)
    pieces_.push_back({0.2 + rng.uniform(), 0.1 + rng.uniform(), rng.uniform()});
  const std::vector<std::uint32_t> batches = {2, 3, 4, 4, 6};
  problem.samples = batches[rng.below(batches.size())];
  for (std::uint32_t r = 1; r <= problem.samples; ++r)
    if (problem.samples % r == 0 && (r == 1 || rng.chance(0.6))) problem.rows.push_back(r);
  problem.max_stages = 4;
  make_pools(rng);
  const auto d = problem.datacenters;
  inside_s_ = 0.2 * rng.uniform();
  const double far = rng.chance(0.3) ? 3 : 0.5;
  const bool has_price = rng.chance(0.6);
  for (std::uint32_t i = 0; i < d * d; ++i) {
    link_s_.push_back(inside_s_ + far * rng.uniform());
    price_.push_back(has_price ? rng.uniform() : 0);
  }
  make_limits(rng);
}

void random_space::make_pools(random_source& rng) {
  problem.datacenters = static_cast<std::uint32_t>(1 + rng.below(3));
  const auto kinds = static_cast<std::uint32_t>(1 + rng.below(3));
  double all = 0;
  for (const auto& p : pieces_) all += p.parameters + p.kept;
  for (std::uint32_t k = 0; k < kinds; ++k) {
    kinds_.push_back(
        {0.5 + 2 * rng.uniform(), all * (0.2 + 1.5 * rng.uniform()), 0.5 * rng.uniform()});
    problem.kinds.push_back({0.5 + rng.uniform() * 3});
    for (std::uint32_t t = 1; t <= 4; t *= 2)
      if (t == 1 || rng.chance(0.4)) problem.classes.push_back({k, t});
  }
  std::uint32_t left = static_cast<std::uint32_t>(1 + rng.below(8));
  for (std::uint32_t datacenter = 0; datacenter < problem.datacenters; ++datacenter)
    for (std::uint32_t k = 0; k < kinds && left > 0; ++k) {
      if (rng.chance(0.3)) continue;
      space_pool pool{k, datacenter, {}};
      const auto nodes = 1 + rng.below(2);
      for (std::uint64_t n = 0; n < nodes && left > 0; ++n) {
        pool.free.push_back(std::min(left, static_cast<std::uint32_t>(1 + rng.below(4))));
        left -= pool.free.back();
      }
      problem.pools.push_back(std::move(pool));
    }
  if (problem.pools.empty()) problem.pools.push_back({0, 0, {1}});
}

void random_space::make_limits(random_source& rng) {
  const std::vector<space_goal> goals = {space_goal::fastest, space_goal::cheapest,
                                         space_goal::efficient};
  problem.goal = goals[rng.below(goals.size())];
  double work = 0;
  for (const auto& p : pieces_) work += p.work * problem.samples;
  if (rng.chance(0.4)) problem.max_s = work * (0.3 + 2 * rng.uniform());
  if (rng.chance(0.3)) problem.max_dollars = work * (0.2 + 3 * rng.uniform()) / 1000;
  if (rng.chance(0.2)) problem.max_gpus = static_cast<std::uint32_t>(1 + rng.below(8));
  // Each freedom is missing in some of them.
  static const std::vector<plan_space> spaces = {
      {true, true, true, true, true, true, true, false, "full"},
      {true, true, true, true, false, false, true, false, "alike"},
      {true, true, true, true, true, false, true, false, "equal shares"},
      {false, false, false, false, false, false, false, false, "nothing"},
      {true, false, false, false, false, false, true, false, "peers anywhere"},
      {false, false, false, true, false, false, false, false, "cuts"},
      {false, true, false, false, false, false, false, false, "degrees"},
      {false, false, true, true, false, false, false, false, "one stage"}};
  problem.space = rng.chance(0.6) ? spaces[0] : spaces[rng.below(spaces.size())];
  if (problem.space.name == "one stage") problem.max_stages = 1;
}

double random_space::work_s(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                            std::uint32_t count) const {
  const auto& c = problem.classes[cls];
  const auto& k = kinds_[c.kind];
  double work = 0.05;
  for (auto i = first; i < first + count; ++i) work += pieces_[i].work * rows;
  const double loss = 1 - k.tensor_loss + k.tensor_loss / c.tensor;
  return work / (k.speed * c.tensor * loss);
}

std::uint32_t random_space::held(std::uint32_t rows, std::uint32_t cls, std::uint32_t first,
                                 std::uint32_t count, std::uint32_t behind) const {
  const auto& c = problem.classes[cls];
  double kept = 0;
  for (auto i = first; i < first + count; ++i) kept += pieces_[i].kept * rows / c.tensor;
  const double left = kinds_[c.kind].gigabytes - parameters(first, count) / c.tensor;
  std::uint32_t n = 0;
  while (n <= behind && kept * (n + 1) <= left) ++n;
  return n;
}

double random_space::parameters(std::uint32_t first, std::uint32_t count) const {
  double all = 0;
  for (auto i = first; i < first + count; ++i) all += pieces_[i].parameters;
  return all;
}

double random_space::send_s(std::uint32_t rows, const space_seat& from,
                            const space_seat& to) const {
  const double link = from.datacenter == to.datacenter
                          ? inside_s_
                          : link_s_[from.datacenter * problem.datacenters + to.datacenter];
  return link * rows / std::min(problem.classes[from.cls].tensor, problem.classes[to.cls].tensor);
}

double random_space::chunk_s(const space_seat& from, const space_seat& to) const {
  const double link = from.datacenter == to.datacenter
                          ? inside_s_
                          : link_s_[from.datacenter * problem.datacenters + to.datacenter];
  // A type may have slower cards.
  return link + 0.05 * (problem.classes[from.cls].kind + problem.classes[to.cls].kind);
}

double random_space::pair_s(double bytes, std::uint32_t pipelines, double chunk) const {
  return pipelines == 1 ? 0 : 2.0 * (pipelines - 1) / pipelines * bytes * chunk + 0.02 * pipelines;
}

space_times::stage_floor random_space::floor_of(std::uint32_t rows, std::uint32_t cls,
                                                std::uint32_t first, std::uint32_t count,
                                                std::uint32_t behind) const {
  if (held(rows, cls, first, count, behind) == 0) return {not_possible, not_possible};
  const double s = work_s(rows, cls, first, count);
  if (behind == 0) return {s, s};
  double hop = not_possible;
  for (std::uint32_t d = 0; d < problem.datacenters; ++d)
    for (std::uint32_t e = 0; e < problem.datacenters; ++e)
      for (std::uint32_t c = 0; c < problem.classes.size(); ++c)
        hop = std::min(hop, send_s(rows, {cls, d}, {c, e}) + send_s(rows, {c, e}, {cls, d}));
  return {s + hop, s};
}

double random_space::tail_floor_s(std::uint32_t /*rows*/, std::uint32_t cls, std::uint32_t first,
                                  std::uint32_t count, std::uint32_t pipelines) const {
  double chunk = not_possible;
  for (std::uint32_t d = 0; d < problem.datacenters; ++d)
    for (std::uint32_t e = 0; e < problem.datacenters; ++e)
      for (std::uint32_t c = 0; c < problem.classes.size(); ++c)
        chunk = std::min({chunk, chunk_s({cls, d}, {c, e}), chunk_s({c, e}, {cls, d})});
  return pair_s(parameters(first, count) / problem.classes[cls].tensor, pipelines, chunk);
}

double random_space::line_s(const space_line& line, std::uint32_t microbatches) const {
  const auto stages = static_cast<std::uint32_t>(line.firsts.size());
  double way = 0, longest = 0;
  const double further = microbatches - 1;
  std::vector<double> from(stages);  // Y
  for (auto i = stages; i-- > 0;) {
    const auto end = i + 1 < stages ? line.firsts[i + 1] : problem.pieces;
    way += work_s(line.rows, line.seats[i].cls, line.firsts[i], end - line.firsts[i]);
    if (i + 1 < stages)
      way += send_s(line.rows, line.seats[i], line.seats[i + 1]) +
             send_s(line.rows, line.seats[i + 1], line.seats[i]);
    from[i] = way;
  }
  for (std::uint32_t i = 0; i < stages; ++i) {
    const auto end = i + 1 < stages ? line.firsts[i + 1] : problem.pieces;
    const auto count = end - line.firsts[i];
    const auto w = held(line.rows, line.seats[i].cls, line.firsts[i], count, stages - 1 - i);
    if (w == 0) return not_possible;
    const double s = work_s(line.rows, line.seats[i].cls, line.firsts[i], count);
    const auto rounds = (microbatches - 1) / w;
    longest = std::max({longest, further * s, rounds * from[i] + (microbatches - 1) % w * s / 3});
  }
  return way + longest;
}

double random_space::traffic(const space_plan& plan) const {
  const auto price = [&](const space_seat& a, const space_seat& b) {
    return a.datacenter == b.datacenter
               ? 0
               : price_[a.datacenter * problem.datacenters + b.datacenter] / 1000;
  };
  double dollars = 0;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const auto& group = plan.groups[g];
    for (std::size_t i = 0; i < plan.firsts.size(); ++i) {
      const auto& seat = group.seats[i];
      const auto end = i + 1 < plan.firsts.size() ? plan.firsts[i + 1] : problem.pieces;
      if (i + 1 < plan.firsts.size())
        dollars += group.pipelines * group.microbatches * plan.rows * 0.1 *
                   (price(seat, group.seats[i + 1]) + price(group.seats[i + 1], seat));
      if (g + 1 < plan.groups.size())
        dollars +=
            parameters(plan.firsts[i], end - plan.firsts[i]) *
            (price(seat, plan.groups[g + 1].seats[i]) + price(plan.groups[g + 1].seats[i], seat));
    }
  }
  return dollars;
}

space_value random_space::value(const space_plan& plan) const {
  double longest = 0, sums = 0, hour = 0;
  const auto pipelines = plan.pipelines();
  for (const auto& g : plan.groups) {
    longest = std::max(longest, line_s({plan.rows, plan.firsts, g.seats}, g.microbatches));
    for (const auto& s : g.seats) {
      const auto& c = problem.classes[s.cls];
      hour += g.pipelines * c.tensor * problem.kinds[c.kind].price_per_hour;
    }
  }
  for (std::size_t i = 0; i < plan.firsts.size(); ++i) {
    const auto end = i + 1 < plan.firsts.size() ? plan.firsts[i + 1] : problem.pieces;
    std::uint32_t tensor = 1U << 20;
    double chunk = 0;
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      const auto& group = plan.groups[g];
      tensor = std::min(tensor, problem.classes[group.seats[i].cls].tensor);
      if (group.pipelines > 1) chunk = std::max(chunk, chunk_s(group.seats[i], group.seats[i]));
      if (g + 1 < plan.groups.size())
        chunk = std::max(chunk, chunk_s(group.seats[i], plan.groups[g + 1].seats[i]));
    }
    const double bytes = parameters(plan.firsts[i], end - plan.firsts[i]) / tensor;
    sums = std::max(sums, pair_s(bytes, pipelines, chunk));
  }
  const double seconds = longest + sums;
  return {seconds, seconds * hour / 3600 + traffic(plan)};
}

}  // namespace troupe::harness
