#include "actors/control/placement_notes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "planners/core/bounds.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t shown_nodes = 20;

std::string name_of(const cluster& c, node_index n) {
  return fmt::format("{} ({})", c.nodes[n].name, c.gpu_of(n).name);
}

/// Why a node is out of the question, or nothing.
std::string obstacle(const cluster& c, const job_spec& job, const plan& how, node_index n,
                     const placement_note& then) {
  const auto& gpu = c.gpu_of(n);
  if (!then.present[n]) return "had not reported, or was considered lost";
  if (!planners::allows(job, gpu))
    return fmt::format("is not of type {} (gpu_type)", job.required_gpu_type);
  if (!(gpu.memory_bytes() > how.bytes_per_gpu))
    return fmt::format("has {:g} GB per GPU, but the plan needs {:.2f}", gpu.memory_gb,
                       how.bytes_per_gpu / bytes_per_gb);
  if (then.idle[n] == 0) return fmt::format("was full: 0 of {} GPUs idle", c.nodes[n].gpus);
  return {};
}

/// HAS takes the node with the fewest idle GPUs that suffice, then the least memory, then the first
/// name.
std::string tie_break(const cluster& c, node_index chosen, node_index other,
                      const placement_note& then) {
  if (then.idle[other] > then.idle[chosen])
    return fmt::format(
        "had {} idle GPUs, {} had {}: best fit takes the node with the fewest sufficient GPUs",
        then.idle[other], c.nodes[chosen].name, then.idle[chosen]);
  if (c.gpu_of(other).memory_bytes() > c.gpu_of(chosen).memory_bytes())
    return fmt::format(
        "had as many idle GPUs, but of {:g} GB: the smallest sufficient memory is preferred",
        c.gpu_of(other).memory_gb);
  return "was equally good: the first name was taken";
}

}  // namespace

std::vector<std::string> explain_nodes(const cluster& c, const job_spec& job, const plan& how,
                                       const allocation& where, const placement_note& then,
                                       bool has_rule) {
  std::vector<std::string> out;
  std::vector<bool> chosen(c.nodes.size());
  for (const auto& share : where) {
    chosen[share.node] = true;
    out.push_back(fmt::format("{}: {} of {} idle GPUs used", name_of(c, share.node), share.gpus,
                              then.idle[share.node]));
  }
  std::size_t others = 0;
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    if (chosen[n] || ++others > shown_nodes) continue;
    auto why = obstacle(c, job, how, n, then);
    if (why.empty() && where.size() == 1 && then.idle[n] < how.gpus())
      why = fmt::format("had {} idle, but the plan needs {} in one node", then.idle[n], how.gpus());
    if (why.empty() && has_rule && where.size() == 1)
      why = tie_break(c, where.front().node, n, then);
    if (why.empty() && has_rule)
      why = fmt::format("had {} idle: nodes with more are taken first if no node has enough",
                        then.idle[n]);
    if (why.empty()) why = fmt::format("had {} suitable idle GPUs as well", then.idle[n]);
    out.push_back(fmt::format("{}: {}", name_of(c, n), why));
  }
  if (others > shown_nodes) out.push_back(fmt::format("and {} more nodes", others - shown_nodes));
  return out;
}

double metric_of(const job_spec& job, const plan& p) {
  if (job.objective == "fastest") return p.samples_per_s;
  if (job.objective == "cheapest")
    return p.cost_per_hour > 0 ? p.samples_per_s * 3600 / p.cost_per_hour : 0;
  return p.gpus() > 0 ? p.samples_per_s / p.gpus() : 0;
}

std::string_view metric_name(const job_spec& job) {
  if (job.objective == "fastest") return "samples/s";
  if (job.objective == "cheapest") return "samples per unit of cost";
  return "samples/s per GPU";
}

}  // namespace troupe::actors
