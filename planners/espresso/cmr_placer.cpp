#include "planners/espresso/cmr_placer.hpp"

#include <algorithm>

#include <cmath>
#include <limits>

#include "messages/base/invariant.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/stage_time.hpp"

namespace troupe::planners {

double compute_memory_ratio(double tflops, double memory_gb, double max_in_memory,
                            double max_hidden) {
  return tflops / memory_gb * std::max(max_in_memory, max_hidden) / max_hidden;
}

namespace {

// Algorithm 2 (section III.C). Whale puts the largest memory in front, where many layers then have
// sums of gradients that no other stage's backwards hide. The paper's idea is to put slow GPUs with
// much memory there, with few layers, so that the longer sums of later stages hide behind the
// backwards of earlier ones (section II.C, Figure 4). The ratio of equation 10 measures that:
// little computing per memory, corrected by how many layers fit and how many sums hide. Greedy, so
// without a guarantee: O(l_max * stages * types) choices, each a scan over sizes. Where the paper
// counts layers, this counts pieces (half layers of a transformer); the ranges' costs come from the
// placer's table.
class ratio_placer {
 public:
  ratio_placer(const cluster& c, const division& d, const cut_problem& p)
      : c_{c}, d_{d}, p_{p}, stages_{p.stages()} {
    double all = 0;
    for (std::size_t t = 0; t < p.types(); ++t) all += p.counts[t] * flops_s(gpu(t));
    for (std::size_t t = 0; t < p.types(); ++t)
      share_.push_back(std::max(1.0, std::round(p.table->pieces() * flops_s(gpu(t)) / all)));
  }

  /// Lines 6 to 14: the plan whose stage 0 has `pieces`. Empty: no GPU holds it, or the others do
  /// not hold the rest. `account`, if not null, gets every GPU that was considered.
  std::vector<cut_stage> with_first(std::uint32_t pieces,
                                    std::vector<ratio_candidate>* account = nullptr) const {
    auto left = p_.counts;
    std::vector<cut_stage> out;
    std::uint32_t done = 0;
    double hidden_s = 0;  // T_s^ol: how long sums of stage s may take and still be hidden
    for (std::uint32_t s = 0; s < stages_; ++s) {
      const auto behind = stages_ - s - 1;
      if (done + behind >= p_.table->pieces()) return {};
      const auto room = p_.table->pieces() - done - behind;
      std::size_t best = p_.types();
      double min = std::numeric_limits<double>::infinity();
      std::uint32_t max_of_best = 0;
      for (std::size_t t = 0; t < p_.types(); ++t) {
        const auto max = left[t] > 0 ? max_in_memory(t, done, room, behind) : 0;
        if (max < (s == 0 ? pieces : 1)) continue;
        const double l_c = s == 0 ? pieces : max_hidden(t, done, room, hidden_s);
        const double ratio = compute_memory_ratio(gpu(t).fp16_tflops, gpu(t).memory_gb, max, l_c);
        if (account) account->push_back({s, d_.types[t].gpu, 1.0 * max, l_c, ratio, false});
        if (ratio < min) min = ratio, best = t, max_of_best = max;
      }
      if (best == p_.types()) return {};
      if (account)
        for (auto& x : *account)
          if (x.stage == s && x.gpu == d_.types[best].gpu) x.taken = true;
      const auto size =
          s == 0 ? pieces : std::min({max_of_best, room, static_cast<std::uint32_t>(share_[best])});
      if (behind > 0) {
        const auto& k = p_.table->middle(best, done, size);
        const auto& w = p_.links[best * p_.types() + best];
        if (s == 0) hidden_s = sums_s(k, best);
        hidden_s += k.backward_s + w.alone_s(k.activation_bytes) + w.latency_s;
      }
      out.push_back({best, size});
      --left[best];
      done += size;
    }
    return cover_all(std::move(out), done);
  }

 private:
  const gpu_type& gpu(std::size_t t) const { return c_.gpus[d_.types[t].gpu]; }

  bool holds(std::size_t t, std::uint32_t first, std::uint32_t count, std::uint32_t behind) const {
    if (first + count > p_.table->pieces()) return false;
    const auto& k = behind == 0 ? p_.table->last(t, first) : p_.table->middle(t, first, count);
    return k.bytes + p_.held[behind] * k.bytes_each < p_.bytes[t];
  }
  /// l_m in pieces. The last stage is treated like the others; that it takes everything that is
  /// left, the head included, is checked when the plan is made.
  std::uint32_t max_in_memory(std::size_t t, std::uint32_t first, std::uint32_t room,
                              std::uint32_t behind) const {
    std::uint32_t max = 0;
    for (std::uint32_t n = 1; n <= room; ++n) {
      const bool last = first + n >= p_.table->size();
      const auto& k = last ? p_.table->last(t, first) : p_.table->middle(t, first, n);
      if (k.bytes + p_.held[behind] * k.bytes_each < p_.bytes[t]) max = n;
    }
    return max;
  }
  /// T^comm: the time of a stage's sums with its peers, between nodes of its type.
  double sums_s(const range_costs& k, std::size_t t) const {
    const auto& w = p_.links[t * p_.types() + t];
    return 2 * (p_.pipelines - 1.0) * w.alone_s(k.gradient_bytes / p_.pipelines);
  }
  /// l_c in pieces, at least 1.
  double max_hidden(std::size_t t, std::uint32_t first, std::uint32_t room, double hidden_s) const {
    std::uint32_t max = 1;
    for (std::uint32_t n = 1; n <= room && first + n < p_.table->size(); ++n)
      if (sums_s(p_.table->middle(t, first, n), t) <= hidden_s) max = n;
    return max;
  }

  /// AdjustToCoverAllLayers, line 14: the remaining pieces go to the stages after the first, by
  /// turns, as memory allows. Empty: memory does not suffice.
  std::vector<cut_stage> cover_all(std::vector<cut_stage> out, std::uint32_t done) const {
    while (done < p_.table->pieces()) {
      const auto before = done;
      for (std::size_t s = std::min<std::size_t>(1, out.size() - 1);
           s < out.size() && done < p_.table->pieces(); ++s) {
        ++out[s].pieces;
        if (all_held(out))
          ++done;
        else
          --out[s].pieces;
      }
      if (done == before) return {};
    }
    return out;
  }
  bool all_held(const std::vector<cut_stage>& stages) const {
    std::uint32_t first = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const auto behind = static_cast<std::uint32_t>(stages.size() - s - 1);
      if (first + stages[s].pieces > p_.table->pieces()) return false;
      if (behind > 0 && !holds(stages[s].type, first, stages[s].pieces, behind)) return false;
      first += stages[s].pieces;
    }
    return true;
  }

  const cluster& c_;
  const division& d_;
  const cut_problem& p_;
  std::uint32_t stages_;
  std::vector<double> share_;  // l_f by type, in pieces: its share of the model by speed
};

}  // namespace

set_plan place_by_ratio(stage_placer& placer, const cluster& c, std::size_t division,
                        const stage_counts& counts) {
  set_plan best;
  double min_s = std::numeric_limits<double>::infinity();
  const auto p = placer.problem_of(division, counts);
  if (!p || p->stages() > p->table->pieces()) return best;
  const ratio_placer ratios{c, placer.divisions()[division], *p};
  for (std::uint32_t first = 1; first <= p->table->pieces(); ++first) {
    const auto stages = ratios.with_first(first);
    if (stages.empty()) continue;
    auto plan = placer.plan_of(division, stages);
    if (!plan.plan) continue;
    const auto e = evaluate(c, placer.job(), plan.plan->how, plan.plan->where, fidelity::closed);
    if (!e || e->iteration_s >= min_s) continue;
    min_s = e->iteration_s;
    best = std::move(plan);
  }
  return best;
}

std::vector<ratio_candidate> explain_ratios(const cluster& c, const job_spec& asked,
                                            const placed_plan& made,
                                            const std::map<gpu_index, double>& max_in_memory) {
  const auto datacenter = c.nodes[made.where.front().node].datacenter;
  idle_index idle{c};
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (c.nodes[n].datacenter != datacenter) idle.set_idle(n, 0);
  auto job = asked;
  job.pipeline.rows = made.how.rows;
  job.pipeline.microbatches = 0;
  job.microbatches.reset();
  stage_placer placer{c, idle, job};
  const auto division = std::ranges::find_if(placer.divisions(), [&](const auto& d) {
    return d.pipelines == made.how.data_parallel &&
           d.tensor == made.how.stages.front().tensor_parallel;
  });
  TROUPE_INVARIANT(division != placer.divisions().end(),
                   "a plan that was made is of one of its placer's divisions");
  stage_counts counts;
  for (const auto& t : division->types)
    counts.push_back(static_cast<std::uint32_t>(
        std::ranges::count(made.how.stages, t.gpu, [](const auto& s) { return *s.gpu; })));

  std::vector<ratio_candidate> all;
  const auto p =
      placer.problem_of(static_cast<std::size_t>(division - placer.divisions().begin()), counts);
  if (!p) return all;
  ratio_placer{c, *division, *p}.with_first(made.how.stages.front().count, &all);
  const double pieces_a_layer = job.model.operators.empty() ? 2 : 1;
  for (auto& x : all) {
    const auto& gpu = c.gpus[x.gpu];
    const auto given = max_in_memory.find(x.gpu);
    x.max_in_memory =
        given != max_in_memory.end() ? given->second : x.max_in_memory / pieces_a_layer;
    x.max_hidden /= pieces_a_layer;
    x.ratio = compute_memory_ratio(gpu.fp16_tflops, gpu.memory_gb, x.max_in_memory, x.max_hidden);
  }
  return all;
}

}  // namespace troupe::planners
