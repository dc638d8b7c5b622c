#include <algorithm>
#include <numeric>

#include "messages/admission/admission_problems.hpp"
#include "messages/admission/job_keys.hpp"
#include "messages/admission/limits.hpp"
#include "messages/base/folds.hpp"
#include "messages/domain/tensor_split.hpp"

namespace troupe::admission {

// Sublayers, not layers, are the pieces: a stage may end between the attention and the MLP of a
// layer.
problem check_cut(const model& m, const std::vector<std::uint32_t>& cut, std::uint32_t stages) {
  const auto parts = m.operators.empty() ? 2 * std::size_t{m.layers} : m.operators.size();
  if (stages > parts)
    return fmt::format("{} stages are more than the {} {} of '{}'", stages, parts,
                       m.operators.empty() ? "sublayers" : "operators", shown(m.name));
  if (cut.empty()) return {};
  const auto what = m.operators.empty() ? "sublayers (two per layer)" : "operators";
  const auto sum = std::accumulate(cut.begin(), cut.end(), std::uint64_t{0});
  if (cut.size() != stages)
    return fmt::format("cut has {} stages, but stages is {}", cut.size(), stages);
  if (sum != parts)
    return fmt::format("cut covers {} {} of the {} of '{}'", sum, what, parts, shown(m.name));
  if (std::ranges::find(cut, 0u) != cut.end()) return fmt::format("a stage of cut has no {}", what);
  std::size_t first = 0;
  for (const auto n : cut) {
    if (first > 0 && !m.operators.empty() && m.operators[first].glued)
      return fmt::format(
          "cut separates layer {} ({}) from the one before it, which shares a parameter with it",
          first, shown(m.operators[first].name));
    first += n;
  }
  return {};
}

problem check_tensor(const model& m, std::uint32_t gpus) {
  if (gpus <= 1) return {};
  if (!m.operators.empty() || m.family != "gpt")
    return fmt::format("tensor_parallel supports models of family gpt only, not '{}'",
                       shown(m.name));
  if (splits_into(m, gpus)) return {};
  return fmt::format(
      "tensor_parallel ({}) must divide the head count ({}), the count of key and value heads ({}) "
      "and the MLP width ({}) of '{}'",
      gpus, m.heads, m.kv_heads == 0 ? m.heads : m.kv_heads, mlp_width(m), shown(m.name));
}

namespace {

/// Keys that say of all pipelines what groups say of each.
problem check_other_keys(const job_spec& job) {
  const auto& w = job.pipeline;
  const std::pair<const char*, bool> others[] = {
      {"cut", !w.cut.empty()},  // which sets the number of stages, too
      {"stages", w.stages > 0},
      {"data_parallel", w.data_parallel > 0},
      {"microbatches", w.microbatches > 0 || job.microbatches},
      {"stages_per_datacenter", w.stages_per_datacenter > 0},
      {"tensor_parallel", w.tensor_parallel > 0},
      {"virtual_stages", w.virtual_stages > 0},
      {"context_parallel", w.context_parallel.has_value()}};
  for (const auto& [key, given] : others)
    if (given) return fmt::format("found with {}, which each group says of its own pipelines", key);
  return {};
}

problem check_group(const model& m, const chosen_group& g) {
  if (auto p = first_invalid_inside(group_keys(), g)) return p;
  for (const auto& s : g.stages) {
    if (auto p = first_invalid_inside(group_stage_keys(), s)) return p;
    if (auto p = check_tensor(m, s.tensor_parallel.value_or(1))) return p;
  }
  return {};
}

}  // namespace

// The names of types and datacenters are a cluster's: planners know them.
problem check_groups(const job_spec& job) {
  if (auto p = check_other_keys(job)) return p;
  const auto& groups = *job.pipeline.groups;
  if (groups.empty()) return "found none, expected at least one";
  const auto cut_of = [](const chosen_group& g) { return mapped(g.stages, &chosen_stage::pieces); };
  const auto cut = cut_of(groups[0]);
  std::uint64_t pipelines = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (auto p = check_group(job.model, groups[g])) return inside(fmt::to_string(g), p);
    if (cut_of(groups[g]) != cut)
      return fmt::format("{}: its stages are cut at other places than those of group 0", g);
    pipelines += groups[g].pipelines;
  }
  if (cut.empty()) return "0: found no stages, expected at least one";
  if (auto p = check_cut(job.model, cut, static_cast<std::uint32_t>(cut.size()))) return p;
  const auto microbatches = microbatches_of(groups);
  if (const auto rows = job.pipeline.rows; rows > 0 && job.global_batch != microbatches * rows)
    return fmt::format("{} micro-batches of {} rows are {} samples, expected global_batch ({})",
                       microbatches, rows, microbatches * rows, job.global_batch);
  if (job.global_batch % microbatches != 0)
    return fmt::format("{} micro-batches must divide global_batch ({})", microbatches,
                       job.global_batch);
  if (pipelines > max_pipelines || microbatches * cut.size() > max_schedule_steps)
    return fmt::format("{} pipelines, {} micro-batches x {} stages; expected at most {} and {}",
                       pipelines, microbatches, cut.size(), max_pipelines, max_schedule_steps);
  return {};
}

}  // namespace troupe::admission
