#include "planners/cost/run_cost.hpp"

#include <algorithm>
#include <vector>

#include "messages/base/folds.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::planners {

namespace {

constexpr std::uint64_t agreement_bytes = sizeof(double), chunk_value_bytes = sizeof(float);

void add(datacenter_traffic& to, std::uint32_t a, std::uint32_t b, std::uint64_t bytes) {
  if (a != b && bytes > 0) to[{a, b}] += bytes;
}

/// The running sum of a stage's gradients crosses each boundary between two runs of its peers once
/// in each direction (actors/training/collectives/sum_chain.hpp). A tied embedding's are summed by
/// the first stage, for both ends.
void add_sums(datacenter_traffic& to, const timed_plan& t, std::uint32_t stage) {
  const auto& at = t.layout;
  const auto runs = at.runs_of(stage);
  const auto& k = t.costs[stage];
  const bool copy = at.stages > 1 && stage + 1 == at.stages;
  const auto all = k.gradient_bytes - (copy ? std::min(k.gradient_bytes, k.tied_bytes) : 0);
  const auto bytes = all - all % chunk_value_bytes;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const auto a = at.datacenter_of(runs[i - 1], stage), b = at.datacenter_of(runs[i], stage);
    add(to, a, b, bytes);
    add(to, b, a, bytes);
  }
}

/// Each peer of a stage of pipeline 0 is ready, and is told to update.
void add_peers_agreements(datacenter_traffic& to, const pipeline_layout& at) {
  for (std::uint32_t p = 1; p < at.pipelines; ++p)
    for (std::uint32_t s = 0; s < at.stages; ++s) {
      const auto a = at.datacenter_of(0, s), b = at.datacenter_of(p, s);
      add(to, a, b, agreement_bytes);
      add(to, b, a, agreement_bytes);
    }
}

}  // namespace

bool agrees_on_updates(const job_spec& job) {
  const auto f = facts_of(job);
  return f.has_stages && f.has_model;
}

void add_agreement(datacenter_traffic& to, std::span<const std::uint32_t> datacenters) {
  for (std::size_t s = 0; s + 1 < datacenters.size(); ++s) {
    add(to, datacenters[s], datacenters[s + 1], agreement_bytes);
    add(to, datacenters[s + 1], datacenters[s], agreement_bytes);
  }
}

void add_pipelines(datacenter_traffic& to, std::span<const std::uint32_t> datacenters,
                   const pipeline_tensors& of, std::uint64_t pipelines) {
  const auto both_ways = [&](std::uint32_t a, std::uint32_t b, std::uint64_t bytes) {
    add(to, a, b, pipelines * bytes);
    add(to, b, a, pipelines * bytes);
  };
  const auto last = datacenters.size() - 1;
  for (std::size_t s = 0; s < last; ++s)
    both_ways(datacenters[s], datacenters[s + 1],
              of.parts * of.microbatches * of.activation_bytes[s]);
  // A stage with several parts of the model has the next part after the last stage's.
  both_ways(datacenters[last], datacenters[0],
            of.tied_bytes + (of.parts - 1) * of.microbatches * of.activation_bytes[0]);
}

// Many equal pipelines, of which only the first are timed, are in one datacenter.
datacenter_traffic traffic_of(const job_spec& job, const timed_plan& timed) {
  datacenter_traffic all;
  const auto& at = timed.layout;
  const auto is_elsewhere = [&](const device_place& p) {
    return p.datacenter != at.places.front().datacenter;
  };
  if (!facts_of(job).has_model || std::ranges::none_of(at.places, is_elsewhere)) return all;
  std::vector<std::uint32_t> datacenters(at.stages);
  std::vector<std::uint64_t> bytes(at.stages);
  for (std::uint32_t p = 0; p < at.pipelines; ++p) {
    const auto* costs = &timed.costs[std::size_t{p} * at.stages];
    for (std::uint32_t s = 0; s < at.stages; ++s) {
      datacenters[s] = at.datacenter_of(p, s);
      bytes[s] = costs[s].activation_bytes;
    }
    add_pipelines(all, datacenters,
                  {timed.batches[at.group_of[p]].microbatches, bytes,
                   job.model.tied_head && at.stages > 1 ? costs[0].tied_bytes : 0,
                   std::max(1U, job.pipeline.virtual_stages)});
    if (p == 0 && agrees_on_updates(job)) add_agreement(all, datacenters);
  }
  if (agrees_on_updates(job)) add_peers_agreements(all, at);
  for (std::uint32_t s = 0; s < at.stages; ++s) add_sums(all, timed, s);
  return all;
}

double price_of(const cluster& c, const datacenter_traffic& traffic) {
  return sum_of(traffic, [&](const auto& x) {
    const auto& [pair, bytes] = x;
    return static_cast<double>(bytes) / bytes_per_gb *
           traffic_price_per_gb(c, pair.first, pair.second);
  });
}

double cost_of_run(const job_spec& job, const plan& how, double iterations) {
  return cost_of_run(iterations, job.global_batch / how.samples_per_s, how.cost_per_hour,
                     how.traffic_per_iteration.value_or(0));
}
double cost_of_run(const job_spec& job, const plan& how) {
  return cost_of_run(job, how, static_cast<double>(job.iterations));
}
double cost_of_iteration(const iteration_estimate& e) {
  return cost_of_run(1, e.iteration_s, e.cost_per_hour, e.traffic_per_iteration);
}

double plan_score(const job_spec& job, const plan& how) {
  const double iteration_s = job.global_batch / how.samples_per_s;
  if (job.objective == "fastest") return iteration_s;
  if (job.objective == "cheapest") return 3600 * cost_of_run(job, how, 1);
  return iteration_s * how.gpus();
}

void set_figures(plan& how, const iteration_estimate& e) {
  how.samples_per_s = e.samples_per_s;
  how.cost_per_hour = e.cost_per_hour;
  set_traffic(how, e.traffic_per_iteration);
}

}  // namespace troupe::planners
