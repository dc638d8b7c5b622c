#include "planners/plans/explicit_plan.hpp"

#include <algorithm>

#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/tensor_split.hpp"
#include "planners/cost/measured_memory.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/plans/known_types.hpp"

namespace troupe::planners {

namespace {

/// Takes each pipeline's GPUs for a stage from the first nodes that have them. A group of GPUs that
/// share a stage is of one node; in the order of the cluster file, so that a user can foresee it.
expected<void> take_gpus(const cluster& c, const plan_stage& stage, std::uint32_t pipelines,
                         std::vector<std::uint32_t>& left, allocation& where) {
  std::uint32_t missing = pipelines;
  for (node_index n = 0; n < c.nodes.size() && missing > 0; ++n) {
    if (c.nodes[n].gpu != *stage.gpu) continue;
    if (stage.datacenter && c.nodes[n].datacenter != *stage.datacenter) continue;
    const auto groups = std::min(missing, left[n] / stage.tensor_parallel);
    if (groups == 0) continue;
    const auto gpus = groups * stage.tensor_parallel;
    const auto at = std::ranges::find(where, n, &node_share::node);
    if (at == where.end())
      where.push_back({n, gpus});
    else
      at->gpus += gpus;
    left[n] -= gpus;
    missing -= groups;
  }
  if (missing == 0) return {};
  return refuse(reason::kind::insufficient,
                "{} pipelines need {} more {} of {} {}, each within one node{}", pipelines, missing,
                missing == 1 ? "group" : "groups", stage.tensor_parallel, c.gpus[*stage.gpu].name,
                stage.datacenter ? " of " + c.datacenters[*stage.datacenter].name : "");
}

/// Whether two groups' stages need the same memory: they may be in other datacenters.
bool need_equal_bytes(const pipeline_group& a, const pipeline_group& b) {
  return a.microbatches == b.microbatches &&
         std::ranges::equal(a.stages, b.stages, [](const plan_stage& x, const plan_stage& y) {
           return x.first == y.first && x.count == y.count &&
                  x.tensor_parallel == y.tensor_parallel && x.gpu == y.gpu && x.held == y.held;
         });
}

/// Sets what each GPU of the group's stages needs.
expected<void> set_bytes(const cluster& c, const job_spec& job, const batch_split& batch,
                         pipeline_group& g) {
  const auto parts = planners::parts_of(job, g.stages);
  if (!parts) return refuse(parts.error());
  const auto stages = static_cast<std::uint32_t>(g.stages.size());
  for (std::uint32_t s = 0; s < stages; ++s) {
    auto& stage = g.stages[s];
    const auto& gpu = c.gpus[*stage.gpu];
    auto load = load_of(job, batch, stages - 1 - s, gpu.memory_bytes(), stages);
    load.held = std::min(load.held, stage.held.value_or(load.held));
    stage.bytes_per_gpu =
        stage_bytes_on(gpu, job, (*parts)[s], load, c.settings.memory_headroom) + guest_bytes(job);
  }
  return {};
}

/// The index of a name; none: the list does not have it.
template <class List>
std::optional<std::uint32_t> index_of(const List& all, const std::string& name) {
  for (std::uint32_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) return i;
  return {};
}

}  // namespace

expected<std::vector<pipeline_group>> groups_on(const cluster& c,
                                                const std::vector<chosen_group>& chosen) {
  std::vector<pipeline_group> groups;
  for (const auto& g : chosen) {
    auto& group = groups.emplace_back(pipeline_group{g.pipelines, g.microbatches, {}});
    std::uint32_t first = 0;
    for (const auto& s : g.stages) {
      plan_stage stage{first, s.pieces, s.tensor_parallel.value_or(1), index_of(c.gpus, s.gpu), 0};
      if (!stage.gpu)
        return refuse(reason::kind::unknown, "pipeline.groups: {} has no GPU '{}'{}", c.name, s.gpu,
                      known_types_text(c, s.gpu));
      if (s.datacenter) stage.datacenter = index_of(c.datacenters, *s.datacenter);
      if (s.datacenter && !stage.datacenter)
        return refuse(reason::kind::unknown, "pipeline.groups: {} has no datacenter '{}'", c.name,
                      *s.datacenter);
      stage.held = s.held;
      first += s.pieces;
      group.stages.push_back(stage);
    }
  }
  return groups;
}

std::optional<std::vector<chosen_group>> chosen_as(const cluster& c,
                                                   const std::vector<pipeline_group>& groups) {
  std::vector<chosen_group> all;
  for (const auto& g : groups) {
    auto& group = all.emplace_back(chosen_group{g.pipelines, g.microbatches, {}});
    for (const auto& s : g.stages) {
      if (!s.gpu) return {};
      auto& to = group.stages.emplace_back(chosen_stage{c.gpus[*s.gpu].name, s.count});
      if (s.tensor_parallel > 1) to.tensor_parallel = s.tensor_parallel;
      if (s.datacenter) to.datacenter = c.datacenters[*s.datacenter].name;
      to.held = s.held;
    }
  }
  return all;
}

// The user's cut is taken as it is: no balance is checked, and memory is left to fits(), whose
// refusal names the GPU that is too small.
expected<placed_plan> plan_of_stages(const cluster& c, const idle_index& idle, const job_spec& job,
                                     const std::vector<stage_request>& stages,
                                     std::uint32_t pipelines) {
  placed_plan out;
  auto& how = out.how;
  how.data_parallel = pipelines;
  how.pipeline_parallel = static_cast<std::uint32_t>(stages.size());
  std::uint32_t first = 0;
  for (const auto& s : stages) {
    if (!splits_into(job.model, s.tensor_parallel))
      return refuse(reason::kind::invalid,
                    "a stage on {} GPUs: they must divide the heads, the key and value "
                    "heads and the MLP width of '{}'",
                    s.tensor_parallel, job.model.name);
    how.stages.push_back({first, s.pieces, s.tensor_parallel, s.gpu, 0});
    how.tensor_parallel = std::max(how.tensor_parallel, s.tensor_parallel);
    if (std::ranges::find(how.gpu_types, s.gpu) == how.gpu_types.end())
      how.gpu_types.push_back(s.gpu);
    first += s.pieces;
  }
  const auto parts = parts_of(job, how.stages);
  if (!parts) return refuse(parts.error());
  const auto batch = split_batch(job, how.pipeline_parallel, pipelines);
  if (batch.microbatches == 0)
    return refuse(reason::kind::invalid,
                  "global batch {} is not divisible by {} pipelines x micro-batches",
                  job.global_batch, pipelines);
  how.microbatches = batch.microbatches;
  how.rows = batch.rows;
  const auto types = mapped(stages, [&](const stage_request& s) { return &c.gpus[s.gpu]; });
  const auto bytes = bytes_by_stage(job, batch, *parts, c.settings.memory_headroom, types);
  std::vector<std::uint32_t> left;
  for (node_index n = 0; n < c.nodes.size(); ++n) left.push_back(idle.idle(n));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    auto& stage = how.stages[s];
    stage.bytes_per_gpu = bytes[s];
    how.bytes_per_gpu = std::max(how.bytes_per_gpu, stage.bytes_per_gpu);
    if (auto ok = take_gpus(c, stage, pipelines, left, out.where); !ok) return refuse(ok.error());
  }
  const auto e = evaluate(c, job, how, out.where, fidelity::closed);
  if (!e) return refuse(e.error());
  set_figures(how, *e);
  return out;
}

// As above, by group. GPUs are taken in the order of the pipelines, in which the layout gives them
// out again.
expected<placed_plan> plan_of_groups(const cluster& c, const idle_index& idle, const job_spec& job,
                                     const std::vector<pipeline_group>& groups, std::uint32_t rows,
                                     const allocation* where) {
  placed_plan out;
  auto& how = out.how;
  if (groups.empty()) return refuse(reason::kind::invalid, "the plan has no groups");
  how.rows = rows;
  how.data_parallel = sum_of(groups, &pipeline_group::pipelines);
  how.pipeline_parallel = static_cast<std::uint32_t>(groups[0].stages.size());
  how.microbatches = groups[0].microbatches;
  how.groups = groups;
  std::vector<std::uint32_t> left;
  for (node_index n = 0; n < c.nodes.size(); ++n) left.push_back(idle.idle(n));
  const pipeline_group* before = nullptr;
  for (auto& g : *how.groups) {
    if (g.stages.size() != how.pipeline_parallel)
      return refuse(reason::kind::invalid, "the groups of the plan have {} and {} stages",
                    how.pipeline_parallel, g.stages.size());
    for (const auto& s : g.stages) {
      if (!splits_into(job.model, s.tensor_parallel))
        return refuse(reason::kind::invalid,
                      "a stage on {} GPUs: they must divide the heads, the key and value "
                      "heads and the MLP width of '{}'",
                      s.tensor_parallel, job.model.name);
      how.tensor_parallel = std::max(how.tensor_parallel, s.tensor_parallel);
      if (std::ranges::find(how.gpu_types, *s.gpu) == how.gpu_types.end())
        how.gpu_types.push_back(*s.gpu);
    }
    if (before && need_equal_bytes(*before, g)) {
      for (std::size_t i = 0; i < g.stages.size(); ++i)
        g.stages[i].bytes_per_gpu = before->stages[i].bytes_per_gpu;
    } else if (auto ok = set_bytes(c, job, {g.microbatches, rows, how.data_parallel}, g); !ok) {
      return refuse(ok.error());
    }
    before = &g;
    for (const auto& stage : g.stages) {
      how.bytes_per_gpu = std::max(how.bytes_per_gpu, stage.bytes_per_gpu);
      if (where) continue;
      if (auto ok = take_gpus(c, stage, g.pipelines, left, out.where); !ok)
        return refuse(ok.error());
    }
  }
  if (where) out.where = *where;
  how.stages = how.groups->front().stages;
  const auto e = evaluate(c, job, how, out.where, fidelity::closed);
  if (!e) return refuse(e.error());
  set_figures(how, *e);
  return out;
}

}  // namespace troupe::planners
