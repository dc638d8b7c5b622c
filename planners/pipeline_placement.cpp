#include "planners/pipeline_placement.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "planners/datacenter_selection.hpp"
#include "planners/marp.hpp"
#include "planners/pipeline_costs.hpp"
#include "planners/queue_order.hpp"
#include "planners/selection_table.hpp"

namespace troupe::planners {

namespace {

/// The GPUs of a selection's chosen row: in each datacentre the nodes with most idle GPUs first.
allocation gpus_of(const cluster& c, const idle_index& idle, const job_spec& job,
                   const selection& s, std::vector<gpu_index>& types) {
  allocation where;
  const auto& row = *s.chosen();
  const auto together = std::max(1U, job.pipeline.tensor_parallel);
  for (std::size_t i = 0; i < s.datacenters.size(); ++i) {
    auto left = row.partitions[i] * row.data_parallel;
    if (left == 0) continue;
    std::vector<node_index> nodes;
    for (node_index n = 0; n < c.nodes.size(); ++n)
      if (c.nodes[n].datacenter == s.datacenters[i].datacenter && idle.idle(n) >= together &&
          speed_of(job, c.gpu_of(n)) >= s.least_flops_s)
        nodes.push_back(n);
    std::ranges::stable_sort(nodes, std::greater{}, [&](auto n) { return idle.idle(n); });
    for (const auto n : nodes) {
      if (left == 0) break;
      const auto take = std::min(left, idle.idle(n) / together);
      where.push_back({n, take * together});
      left -= take;
      if (std::ranges::find(types, c.nodes[n].gpu) == types.end()) types.push_back(c.nodes[n].gpu);
    }
  }
  return where;
}

class pipelines_first : public policy {
 public:
  explicit pipelines_first(std::unique_ptr<policy> others) : others_{std::move(others)} {}

  std::string_view name() const override { return others_->name(); }
  double round_s() const override { return others_->round_s(); }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    if (s.waiting_pipelines.empty()) return others_->decide(s, random);
    std::vector<decision> out;
    idle_index rest{s.idle};
    for (const auto* j : in_order(s.waiting_pipelines)) {
      if (!j->plans || j->plans->empty()) {
        const auto none = plans_for(s.cluster, *j->spec);
        out.push_back({decision::kind::give_up, j->id, {}, {}, none ? reason{} : none.error()});
        continue;
      }
      auto placed = place(s, rest, *j);
      if (!placed) continue;
      take(rest, placed->where);
      out.push_back(
          {decision::kind::start, j->id, std::move(placed->how), std::move(placed->where), {}});
    }
    auto more = others_->decide({s.now_s, s.cluster, rest, s.waiting, s.running}, random);
    std::ranges::move(more, std::back_inserter(out));
    return out;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto it = s.waiting_pipelines.find(job);
    if (it == s.waiting_pipelines.end()) return others_->why_waiting(s, job);
    const auto placed = place(s, s.idle, it->second);
    if (!placed) return placed.error();
    return {reason::kind::insufficient, "jobs before it come first"};
  }

 private:
  static expected<pipeline_placement> place(const snapshot& s, const idle_index& idle,
                                            const job_view& j) {
    // A job that leaves the number of GPUs open starts with this share of the speed that it could
    // have, and not with the one GPU that another job has just let go.
    constexpr double least_share = 0.5;
    const auto& spec = *j.spec;
    const auto& best = j.plans->front();
    const auto& wish = spec.pipeline;
    const bool settled = j.attempts > 0 || s.now_s >= j.submitted_s + s.cluster.settings.lease_s;
    const bool fits_cluster = (!wish.stages || best.pipeline_parallel == wish.stages) &&
                              (!wish.data_parallel || best.data_parallel == wish.data_parallel);
    std::uint64_t present = idle.total_idle();
    for (const auto* running : {&s.running, &s.running_pipelines})
      for (const auto& [id, r] : *running) present += total_gpus(r.where);
    const bool in_full = wish.stages && wish.data_parallel;
    const auto wanted = in_full ? std::uint64_t{wish.stages} * wish.data_parallel *
                                      std::max(1U, wish.tensor_parallel)
                                : best.gpus();
    const auto wait = [&](std::uint64_t needed) {
      return refuse(reason::kind::insufficient,
                    fmt::format("needs {} GPUs for {} pipelines of {} stages; {} are idle", needed,
                                best.data_parallel, best.pipeline_parallel, idle.total_idle()));
    };
    if (idle.total_idle() == 0) return wait(wanted);
    if (fits_cluster && in_full && (!settled || present >= wanted)) {
      if (idle.total_idle() < wanted) return wait(wanted);
      return place_pipelines(s.cluster, idle, spec, true);
    }
    // Few idle GPUs are not worth a look at all that could be done with them.
    const bool enough = 2 * std::uint64_t{idle.total_idle()} >= best.gpus();
    if (!settled && !enough) return wait(best.gpus());
    auto placed = place_pipelines(s.cluster, idle, spec, true);
    if (!placed && (settled || !fits_cluster))
      placed = place_pipelines(s.cluster, idle, spec, false);
    if (!placed) return placed;
    const bool alone = present == idle.total_idle() && settled;
    if (!alone && placed->how.samples_per_s < least_share * best.samples_per_s)
      return wait(best.gpus());
    return placed;
  }

  std::unique_ptr<policy> others_;
};

}  // namespace

bool is_pipeline_job(const job_spec& job) {
  return job.train || job.slots || job.pipeline != pipeline_wish{};
}

expected<pipeline_placement> place_pipelines(const cluster& c, const idle_index& idle,
                                             const job_spec& job, bool as_wished) {
  const auto s = select_placement(c, idle, job, as_wished);
  if (!s) return tl::unexpected<reason>(s.error());
  const auto& row = *s->chosen();
  pipeline_placement p;
  p.how.data_parallel = row.data_parallel;
  p.how.pipeline_parallel = s->stages;
  p.how.tensor_parallel = std::max(1U, job.pipeline.tensor_parallel);
  p.how.bytes_per_gpu = row.bytes_per_gpu;
  p.how.samples_per_s = job.global_batch / row.iteration_s;
  p.where = gpus_of(c, idle, job, *s, p.how.gpu_types);
  for (const auto& share : p.where)
    p.how.cost_per_hour += share.gpus * c.gpu_of(share.node).price_per_hour;
  return p;
}

expected<std::vector<plan>> plans_for(const cluster& c, const job_spec& job) {
  if (!is_pipeline_job(job)) return marp(c, job);
  const idle_index whole{c};
  auto placed = place_pipelines(c, whole, job, true);
  if (!placed) {
    auto fewer = place_pipelines(c, whole, job, false);
    if (!fewer) return tl::unexpected<reason>(placed.error());
    placed = std::move(fewer);
  }
  return std::vector<plan>{std::move(placed->how)};
}

std::unique_ptr<policy> with_pipelines(std::unique_ptr<policy> others) {
  return std::make_unique<pipelines_first>(std::move(others));
}

}  // namespace troupe::planners
