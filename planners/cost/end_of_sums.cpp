#include "planners/cost/closed_form.hpp"

#include <algorithm>

#include "planners/cost/overlap.hpp"
#include "planners/cost/tensor_routes.hpp"

namespace troupe::planners {

namespace {

/// How much longer the first or the last stage of a pipeline takes because both sum a tied
/// embedding. `first`: index of the first stage, whose gradients are on the host at `begin_s`.
double waits_for_tied_s(const timed_plan& t, std::size_t first, double last_backward_s,
                        double begin_s) {
  const auto last = first + t.layout.stages - 1;
  const auto& a = t.times.stages[first];
  const auto& z = t.times.stages[last];
  const double arrives_s =
      last_backward_s + z.gradients + t.times.routes[last].tied_route.total_s();
  const double back_s = t.times.routes[first].tied_route.total_s();
  if (t.times.commit.needed()) return std::max(0.0, arrives_s - begin_s);
  return std::max(0.0, arrives_s - begin_s) +
         std::max(0.0, back_s + z.update - z.gradients - (a.update - a.gradients));
}

/// From when all stages, by pipeline * stages + stage, could update to when the first ones do. The
/// others get the word with the next iteration's first activation, beside which they update.
void agree(std::vector<double>& ready_s, const timed_plan& t) {
  const auto at_s = t.times.commit.arrivals(ready_s);
  for (std::size_t i = 0; i < ready_s.size(); i += t.layout.stages) ready_s[i] = at_s[i];
}

/// The same where sums run beside the last steps: a stage's sums as they are ready, without other
/// stages' on the same link, and the update after them.
double end_of_overlapped_s(const timed_plan& t, const job_spec& job,
                           const std::vector<double>& last_backward_s) {
  // Where each pipeline updates its share, the gradients are scattered before and the weights
  // gathered after: half of a sum each.
  const bool shared = job.memory && job.memory->zero > 0;
  double end = 0;
  for (const auto& g : parts_of_groups(t))
    for (auto i = g.begin; i < g.end; ++i) {
      const auto& k = t.times.stages[i];
      sum_window w;
      w.parts = std::max(1U, job.pipeline.virtual_stages);
      w.in_order = std::min(g.shape.microbatches, g.shape.stages);
      w.step_s = k.backward;
      double left_s = left_of_sum_s(shared ? k.exchange / 2 : k.exchange, w);
      w.step_s = k.forward;
      if (shared) left_s += left_of_sum_s(k.exchange / 2, w);
      end =
          std::max(end, last_backward_s[g.hop + i % g.shape.stages] + left_s + k.norms + k.update);
    }
  return end;
}

/// When stage `i` has its sums but for what is between datacenters. `free_s`: by link, until when
/// it is used by sums of stages before; `last_end_s`: the last backward of the pipeline's last
/// stage.
double summed_s(const timed_plan& t, std::size_t i, double begin_s, double last_end_s,
                bool lower_bound, std::vector<double>& free_s) {
  const auto& routes = t.times.routes[i];
  const auto& k = t.times.stages[i];
  // The commit does not wait for the last stage's tied sum.
  const bool late = t.times.commit.needed() && i % t.layout.stages > 0;
  double tied_s = late ? 0 : k.exchange - peers_s(routes);
  double end_s = begin_s + peers_s(routes) + tied_s - routes.between_s;
  // The last stage's part may come while the first one's backwards still run.
  if (lower_bound && routes.tied) {
    tied_s = i % t.layout.stages == 0 ? waits_for_tied_s(t, i, last_end_s, begin_s) : 0;
    end_s = begin_s + peers_s(routes) - routes.between_s + tied_s;
  }
  for (const auto& to : routes.peers) {
    auto& f = free_s[to.route.link];
    f = std::max(f, begin_s) + 2.0 * to.count * to.route.link_s();
    // A flow that does not fill its link takes longer than its part of it.
    const double alone_s = begin_s + 2 * to.route.alone_s;
    end_s = std::max(end_s, std::max(f, alone_s) + 2 * to.route.latency_s + tied_s);
  }
  return end_s;
}

}  // namespace

double end_of_sums_s(const timed_plan& t, const job_spec& job,
                     const std::vector<double>& last_backward_s, bool lower_bound) {
  if (job.pipeline.overlap.value_or(false)) return end_of_overlapped_s(t, job, last_backward_s);
  const auto stages = t.layout.stages;
  std::vector<double> free_s(t.times.links, 0.0), ready_s(t.times.stages.size());
  const auto groups = parts_of_groups(t);
  for (auto s = stages; s-- > 0;) {
    double between_s = 0, all_s = 0;
    for (const auto& g : groups)
      for (auto i = g.begin + s; i < g.end; i += stages) {
        const auto& k = t.times.stages[i];
        const double begin_s = last_backward_s[g.hop + s] + k.gradients;
        ready_s[i] = begin_s + k.exchange;
        if (!t.times.routes.empty()) {
          const auto first_end_s = last_backward_s[g.hop + stages - 1];
          ready_s[i] = summed_s(t, i, begin_s, first_end_s, lower_bound, free_s);
          between_s = std::max(between_s, t.times.routes[i].between_s);
        }
        all_s = std::max(all_s, ready_s[i]);
      }
    // A sum has the parts of all groups, whose last backwards end at different times.
    for (std::size_t i = s; i < ready_s.size(); i += stages) {
      if (groups.size() > 1) ready_s[i] = all_s;
      ready_s[i] += between_s + t.times.stages[i].norms;
    }
  }
  if (t.times.commit.needed()) agree(ready_s, t);
  double end = 0;
  for (std::size_t i = 0; i < ready_s.size(); ++i)
    end = std::max(end, ready_s[i] + t.times.stages[i].update - t.times.stages[i].gradients);
  return end;
}

}  // namespace troupe::planners
