#include "cli/reports/plan_document.hpp"

#include <cmath>

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
           {"gpu_types", types},
           {"stages", stages_document(c, p.stages)}};
  if (!p.groups) return out;
  for (const auto& g : groups_of(p))
    out["groups"].push_back({{"pipelines", g.pipelines},
                             {"microbatches", g.microbatches},
                             {"stages", stages_document(c, g.stages)}});
  return out;
}

}  // namespace troupe::cli
