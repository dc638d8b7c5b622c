#include "planners/cost/end_of_sums.hpp"

#include <algorithm>

#include "planners/cost/tensor_routes.hpp"

namespace troupe::planners {

namespace {

/// How much longer the first or the last stage of a pipeline takes because both sum a tied
/// embedding. `first`: index of the first stage, whose gradients are on the host at `begin_s`.
double waits_for_tied_s(const timed_plan& t, std::size_t first, double last_backward_s,
                        double begin_s) {
  const auto last = first + t.shape.stages - 1;
  const auto& a = t.times.stages[first];
  const auto& z = t.times.stages[last];
  const double arrives_s =
      last_backward_s + z.gradients + t.times.routes[last].tied_route.total_s();
  const double back_s = t.times.routes[first].tied_route.total_s();
  if (!t.times.norm_ways.empty()) return std::max(0.0, arrives_s - begin_s);
  return std::max(0.0, arrives_s - begin_s) +
         std::max(0.0, back_s + z.update - z.gradients - (a.update - a.gradients));
}

/// From when all stages, by pipeline * stages + stage, have their own norms to when they have all.
void exchange_norms(std::vector<double>& ready_s, const timed_plan& t) {
  const auto stages = t.shape.stages;
  for (auto p = ready_s.begin(); p != ready_s.end(); p += stages) {
    const auto arrivals = norm_arrivals({p, p + stages}, t.times.norm_ways);
    std::ranges::copy(arrivals, p);
  }
}

}  // namespace

double end_of_sums_s(const timed_plan& t, const std::vector<double>& last_backward_s,
                     bool lower_bound) {
  const auto& shape = t.shape;
  std::vector<double> free_s(t.times.links, 0.0), ready_s(t.times.stages.size());
  for (auto s = shape.stages; s-- > 0;)
    for (auto i = std::size_t{s}; i < t.times.stages.size(); i += shape.stages) {
      const auto& k = t.times.stages[i];
      const double begin_s = last_backward_s[s] + k.gradients;
      double summed_s = begin_s + k.exchange;
      if (!t.times.routes.empty()) {
        const auto& routes = t.times.routes[i];
        double tied_s = k.exchange - peers_s(routes);
        // The last stage's part may come while the first one's backwards still run.
        if (lower_bound && routes.tied) {
          tied_s = s == 0 ? waits_for_tied_s(t, i, last_backward_s.back(), begin_s) : 0;
          summed_s = begin_s + peers_s(routes) + tied_s;
        }
        for (const auto& to : routes.peers) {
          auto& f = free_s[to.route.link];
          f = std::max(f, begin_s) + 2.0 * to.count * to.route.link_s();
          // A flow that does not fill its link takes longer than its part of it.
          const double alone_s = begin_s + 2 * to.route.alone_s;
          summed_s = std::max(summed_s, std::max(f, alone_s) + 2 * to.route.latency_s + tied_s);
        }
      }
      ready_s[i] = summed_s + k.norms;
    }
  if (!t.times.norm_ways.empty()) exchange_norms(ready_s, t);
  double end = 0;
  for (std::size_t i = 0; i < ready_s.size(); ++i)
    end = std::max(end, ready_s[i] + t.times.stages[i].update - t.times.stages[i].gradients);
  return end;
}

}  // namespace troupe::planners
