#include "planners/search/set_climb.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe::planners {

namespace {

std::uint32_t stages_in(const stage_counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0U);
}

/// The set of a plan's stages; none: the division has not these types.
std::optional<stage_counts> counts_of(const division& d, const std::vector<plan_stage>& stages) {
  stage_counts counts(d.types.size());
  for (const auto& s : stages) {
    const auto at = std::ranges::find(d.types, s.gpu.value(), &stage_type::gpu);
    if (at == d.types.end()) return {};
    ++counts[static_cast<std::size_t>(at - d.types.begin())];
  }
  return counts;
}

}  // namespace

set_plan cut_best(stage_placer& placer, std::size_t division, const stage_counts& counts,
                  double limit_s) {
  return placer.place(division, counts, limit_s, {}, {}, {.rough = true});
}

set_climb::set_climb(const cluster& c, const idle_index& idle, const job_spec& job,
                     const set_wish& wish, placing place, fidelity f)
    : placer_{c, idle, job, f}, wish_{wish}, place_{std::move(place)} {}

double set_climb::worth(const division& d, const stage_counts& counts) const {
  return wish_.by_price ? d.price_per_hour(counts) / 3600 : d.gpus(stages_in(counts));
}

bool set_climb::spend(planning_budget& budget) {
  constexpr std::uint64_t units_a_set = 100;
  const auto units = placer_.units() + units_a_set;
  return budget.spend(units - std::exchange(spent_, placer_.units()));
}

std::optional<set_climb::found_set> set_climb::look_at(std::size_t division,
                                                       const stage_counts& counts, double below) {
  const auto& d = placer_.divisions()[division];
  const auto stages = stages_in(counts);
  if (stages == 0 || stages > placer_.max_stages()) return {};
  if (wish_.max_gpus && d.gpus(stages) > *wish_.max_gpus) return {};
  const double a_second = worth(d, counts);
  const double limit_s = a_second > 0 ? std::min(wish_.max_s, below / a_second) : wish_.max_s;
  const auto* bound = placer_.bound(division, stages);
  if (!bound || bound->in_pieces(counts) > limit_s * (1 + 1e-12) ||
      !placer_.may_hold(division, counts))
    return {};
  auto placed = place_(placer_, division, counts, limit_s);
  const double cost = placed.iteration_s * a_second;
  if (!placed.plan || !(cost < below) || !(placed.iteration_s <= wish_.max_s * (1 + 1e-12)))
    return {};
  return found_set{division, counts, std::move(placed), cost};
}

std::vector<set_climb::found_set> set_climb::of_one_type(planning_budget& budget) {
  std::vector<found_set> out;
  std::vector<double> best;  // by type
  for (std::size_t n = 0; n < placer_.divisions().size(); ++n) {
    const auto& types = placer_.divisions()[n].types;
    best.resize(std::max(best.size(), types.size()), std::numeric_limits<double>::infinity());
    for (std::size_t t = 0; t < types.size(); ++t) {
      stage_counts counts(types.size());
      const auto max = std::min(types[t].stages, placer_.max_stages());
      for (counts[t] = 1; counts[t] <= max; ++counts[t]) {
        auto found = look_at(n, counts, best[t]);
        if (found) best[t] = found->cost, out.push_back(std::move(*found));
        if (!spend(budget)) return out;
      }
    }
  }
  return out;
}

std::vector<set_climb::found_set> set_climb::around(const plan& how, double cost,
                                                    planning_budget& budget) {
  std::vector<found_set> out;
  const auto& all = placer_.divisions();
  const auto same = std::ranges::find_if(all, [&](const division& d) {
    return d.pipelines == how.data_parallel && d.tensor == how.tensor_parallel;
  });
  if (same == all.end() || how.groups) return out;
  const auto own = counts_of(*same, how.stages);
  if (!own) return out;
  const auto number = static_cast<std::size_t>(same - all.begin());
  const auto look = [&](const stage_counts& counts) {
    auto found = look_at(number, counts, cost);
    if (found) cost = found->cost, out.push_back(std::move(*found));
  };
  look(*own);
  auto from = *own;
  for (bool better = true; better;) {
    const auto before = out.size();
    for (std::size_t less = 0; less <= from.size(); ++less)
      for (std::size_t more = 0; more <= from.size(); ++more) {
        if (less == more) continue;
        auto counts = from;
        if (less < counts.size() && counts[less]-- == 0) continue;
        if (more < counts.size() && ++counts[more] > same->types[more].stages) continue;
        look(counts);
        if (!spend(budget)) return out;
      }
    better = out.size() > before;
    if (better) from = out.back().counts;
  }
  return out;
}

}  // namespace troupe::planners
