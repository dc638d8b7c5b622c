#include "cli/reports/plan_document.hpp"

#include <cmath>

#include <fmt/format.h>

#include "cli/output/human.hpp"
#include "messages/base/folds.hpp"
#include "planners/policy/placement.hpp"

namespace troupe::cli {

namespace {

json stages_document(const cluster& c, const std::vector<plan_stage>& stages) {
  json out = json::array();
  for (const auto& s : stages) {
    out.push_back({{"gpu", s.gpu ? json(c.gpus[*s.gpu].name) : json()},
                   {"first_piece", s.first},
                   {"pieces", s.count},
                   {"tensor_parallel", s.tensor_parallel},
                   {"bytes_per_gpu", std::llround(s.bytes_per_gpu)}});
    if (s.datacenter) out.back()["datacenter"] = c.datacenters[*s.datacenter].name;
    if (s.held) out.back()["held"] = *s.held;
  }
  return out;
}

}  // namespace

// MARP's figure stands beside the model's own, which is what the CUDA device allocates: Frenzy's
// paper compares the two.
json plan_document(const cluster& c, const job_spec& job, const plan& p) {
  json types = json::array();
  for (const auto g : p.gpu_types) types.push_back(c.gpus[g].name);
  const auto marp = planners::bytes_by_marp(c, job, p);
  json out{{"data_parallel", p.data_parallel},
           {"tensor_parallel", p.tensor_parallel},
           {"pipeline_parallel", p.pipeline_parallel},
           {"gpus", p.gpus()},
           {"bytes_per_gpu", std::llround(p.bytes_per_gpu)},
           {"marp_bytes_per_gpu", marp ? json(std::llround(*marp)) : json()},
           {"microbatches", p.microbatches > 0 ? json(p.microbatches) : json()},
           {"rows_per_microbatch", p.rows > 0 ? json(p.rows) : json()},
           {"samples_per_s", p.samples_per_s},
           {"cost_per_hour", p.cost_per_hour},
           {"traffic_per_iteration", p.traffic_per_iteration.value_or(0)},
           {"gpu_types", types},
           {"stages", stages_document(c, p.stages)}};
  if (!p.groups) return out;
  for (const auto& g : groups_of(p))
    out["groups"].push_back({{"pipelines", g.pipelines},
                             {"microbatches", g.microbatches},
                             {"stages", stages_document(c, g.stages)}});
  return out;
}

json cost_document(const cluster& c, const planners::iteration_estimate& e) {
  json traffic = json::array();
  for (const auto& [pair, bytes] : e.traffic)
    traffic.push_back({{"from", c.datacenters[pair.first].name},
                       {"to", c.datacenters[pair.second].name},
                       {"bytes", bytes}});
  return {{"cost_per_hour", e.cost_per_hour},
          {"traffic_per_iteration", e.traffic_per_iteration},
          {"cost_per_iteration", planners::cost_of_iteration(e)},
          {"traffic", traffic},
          {"traffic_is_priced", prices_traffic(c)}};
}

std::string traffic_text(const cluster& c, const planners::iteration_estimate& e) {
  if (e.traffic.empty()) return {};
  const auto bytes = sum_of(e.traffic, [](const auto& x) { return x.second; });
  const auto sent = size_text(static_cast<double>(bytes));
  if (!prices_traffic(c))
    return fmt::format("Sends {} per iteration between datacenters, which is not priced.", sent);
  return fmt::format("Sends {} per iteration between datacenters for {:.4g}: {:.4g} with its GPUs.",
                     sent, e.traffic_per_iteration, planners::cost_of_iteration(e));
}

}  // namespace troupe::cli
