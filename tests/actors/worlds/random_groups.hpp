#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/policy/policy.hpp"

// Plans of random groups of pipelines, for virtual time.

namespace troupe::harness {

/// Places every job by groups that were chosen before.
class by_groups final : public planners::policy {
 public:
  by_groups(std::vector<pipeline_group> groups, std::uint32_t rows)
      : groups_{std::move(groups)}, rows_{rows} {}

  std::string_view name() const override { return "by-groups"; }
  reason why_waiting(const planners::snapshot&, job_id) const override { return {}; }
  bool places(const job_spec&, bool) const override { return true; }
  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planners::planning_budget&) const override {
    auto made = planners::plan_of_groups(c, planners::idle_index{c}, job, groups_, rows_);
    if (!made) return refuse(made.error());
    return std::vector{made->how};
  }
  std::vector<planners::decision> decide(const planners::snapshot& s,
                                         random_source&) const override {
    std::vector<planners::decision> out;
    for (const auto& [id, j] : s.waiting)
      if (auto made = planners::plan_of_groups(s.cluster, s.idle, *j.spec, groups_, rows_)) {
        out.push_back(planners::start_job(id, made->how, made->where));
        out.back().expected.emplace();
        break;
      }
    return out;
  }

 private:
  std::vector<pipeline_group> groups_;
  std::uint32_t rows_;
};

/// Pipelines of random shares in up to three datacenters.
struct grouped_case {
  cluster on;
  job_spec job;
  std::vector<pipeline_group> groups;
  std::uint32_t rows = 1;
};

/// `crossing`: a group's stages may be in several of them.
inline grouped_case random_groups(random_source& r, bool crossing = false) {
  grouped_case x;
  auto& c = x.on;
  c.name = "groups";
  gpu_type gpu;
  gpu.name = "G";
  gpu.memory_gb = 1e6;
  gpu.fp16_tflops = 20.0 + static_cast<double>(r.below(300));
  gpu.memory_gbytes_s = 1000;
  c.gpus = {gpu};
  const auto sites = 1 + static_cast<std::uint32_t>(r.below(3));
  for (std::uint32_t d = 0; d < sites; ++d) {
    c.datacenters.push_back({"d" + std::to_string(d), ""});
    for (int n = 0; n < 16; ++n)
      c.nodes.push_back(
          {"n" + std::to_string(c.nodes.size()), d, 0, 1, {"", 200, 2}, {"", 50, 20}});
    for (std::uint32_t other = 0; other < d; ++other)
      c.wan.push_back({other, d, 5 + 20 * r.uniform(), 1 + 4 * r.uniform(), 0});
  }
  auto& m = x.job.model;
  m.name = "m";
  m.hidden = 512, m.layers = 8, m.heads = 8, m.sequence = 512, m.vocabulary = 1000;
  m.tied_head = r.chance(0.5);
  m.needs_norm = r.chance(0.3);
  const auto stages = 1 + static_cast<std::uint32_t>(r.below(3));
  x.rows = 1 + static_cast<std::uint32_t>(r.below(2));
  std::uint32_t microbatches = 0;
  for (std::uint32_t d = 0; d < sites; ++d) {
    auto& g = x.groups.emplace_back();
    g.pipelines = 1 + static_cast<std::uint32_t>(r.below(3));
    g.microbatches = 1 + static_cast<std::uint32_t>(r.below(6));
    microbatches += g.pipelines * g.microbatches;
    for (std::uint32_t s = 0; s < stages; ++s) {
      const auto first = 16 * s / stages, end = 16 * (s + 1) / stages;
      const auto at = crossing ? static_cast<std::uint32_t>(r.below(sites)) : d;
      g.stages.push_back({first, end - first, 1, gpu_index{0}, 0, at});
    }
  }
  x.job.name = "groups";
  x.job.global_batch = microbatches * x.rows;
  x.job.iterations = 1 + r.below(5);
  x.job.train.emplace();
  x.job.train->device = "sim";
  x.job.train->schedule = "megatron";
  x.job.pipeline.stages = stages;
  return x;
}

}  // namespace troupe::harness
