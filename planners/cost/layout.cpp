#include "planners/cost/layout.hpp"

#include <algorithm>
#include <functional>

#include "messages/base/folds.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::planners {

namespace {

/// A node's GPUs that are not yet assigned.
struct stock {
  node_index node = 0;
  std::vector<std::uint16_t> left;  // in the lease's order
};

/// A datacenter's nodes, in the lease's order, and the stages assigned to it.
struct site {
  std::uint32_t datacenter = 0;
  std::vector<stock> stocks;
  std::uint32_t gpus = 0;
  std::uint32_t first = 0, stages = 0;
  std::size_t open = 0;  // nodes before this one are used up

  /// The first node of the lease with enough GPUs of the stage's type, or null.
  stock* find(const cluster& c, const plan_stage& stage) {
    while (open < stocks.size() && stocks[open].left.empty()) ++open;
    for (auto i = open; i < stocks.size(); ++i)
      if (stocks[i].left.size() >= stage.tensor_parallel &&
          (!stage.gpu || c.nodes[stocks[i].node].gpu == *stage.gpu))
        return &stocks[i];
    return nullptr;
  }
};

/// The lease's nodes by datacenter, both in the lease's order.
expected<std::vector<site>> sites_of(const cluster& c, const std::vector<lease_part>& parts) {
  std::vector<site> sites;
  for (const auto& part : parts) {
    if (part.node >= c.nodes.size())
      return refuse(reason::kind::unknown, "no node has index {}", part.node);
    const auto dc = c.nodes[part.node].datacenter;
    auto at = std::ranges::find(sites, dc, &site::datacenter);
    if (at == sites.end()) at = sites.insert(at, site{dc, {}});
    at->stocks.push_back({part.node, part.devices});
    at->gpus += static_cast<std::uint32_t>(part.devices.size());
  }
  return sites;
}

/// Assigns consecutive stages to each datacenter while its GPUs suffice for all pipelines. Fails if
/// that leaves GPUs over: a lease has exactly the plan's GPUs.
expected<void> deal_stages(const cluster& c, const plan& how, std::vector<site>& sites) {
  std::uint32_t next = 0;
  for (auto& s : sites) {
    s.first = next;
    std::uint32_t used = 0;
    for (; next < how.stages.size(); ++next) {
      const auto more = how.data_parallel * how.stages[next].tensor_parallel;
      if (used + more > s.gpus) break;
      used += more;
    }
    s.stages = next - s.first;
    if (used != s.gpus)
      return refuse(reason::kind::invalid,
                    "{} has {} GPUs for {} pipelines, but the {} stages that fit there use {}",
                    c.datacenters[s.datacenter].name, s.gpus, how.data_parallel, s.stages, used);
  }
  if (next == how.stages.size()) return {};
  return refuse(reason::kind::invalid, "{} of the plan's {} stages have no GPUs",
                how.stages.size() - next, how.stages.size());
}

/// Deterministic first fit: a plan and a lease always give the same layout, so that planner and
/// trainer agree without exchanging it.
expected<pipeline_layout> place(const cluster& c, const std::vector<lease_part>& parts,
                                const plan& how) {
  if (how.stages.empty() || how.data_parallel == 0)
    return refuse(reason::kind::invalid, "the plan has no stages, or no pipelines");
  auto sites = sites_of(c, parts);
  if (!sites) return refuse(sites.error());
  if (auto ok = deal_stages(c, how, *sites); !ok) return refuse(ok.error());
  pipeline_layout layout;
  layout.stages = static_cast<std::uint32_t>(how.stages.size());
  layout.pipelines = how.data_parallel;
  layout.places.resize(std::size_t{layout.stages} * layout.pipelines);
  for (auto& site : *sites) {
    if (site.stages == 0) continue;
    layout.datacenters.push_back(site.datacenter);
    layout.stages_of_datacenter.push_back(site.stages);
    // A pipeline's consecutive stages share a node; the peers of a stage are then on different
    // nodes, each with its own part of the WAN.
    for (std::uint32_t p = 0; p < layout.pipelines; ++p)
      for (auto s = site.first; s < site.first + site.stages; ++s) {
        const auto& stage = how.stages[s];
        auto* from = site.find(c, stage);
        if (!from)
          return refuse(reason::kind::invalid, "no node of the lease has {} {} left for stage {}",
                        stage.tensor_parallel, stage.gpu ? c.gpus[*stage.gpu].name : "GPUs", s);
        TROUPE_INVARIANT(from->left.size() >= stage.tensor_parallel,
                         "a stage's node has a GPU for each of its ranks");
        TROUPE_INVARIANT(layout.places[std::size_t{p} * layout.stages + s].devices.empty(),
                         "each stage of each pipeline has one place");
        const auto end = from->left.begin() + stage.tensor_parallel;
        layout.places[std::size_t{p} * layout.stages + s] = {from->node, {from->left.begin(), end}};
        from->left.erase(from->left.begin(), end);
      }
  }
  TROUPE_INVARIANT(layout.stages == sum_of(layout.stages_of_datacenter, std::identity{}),
                   "each stage is in one datacenter");
  return layout;
}

/// An allocation as a lease with GPUs 0, 1, ... of each node.
std::vector<lease_part> numbered(const allocation& where) {
  std::vector<lease_part> parts;
  for (const auto& share : where)
    parts.push_back({share.node, 0, indices<std::uint16_t>(share.gpus)});
  return parts;
}

}  // namespace

std::uint32_t pipeline_layout::datacenter_of(std::uint32_t stage) const {
  for (std::size_t i = 0; i < datacenters.size(); ++i) {
    if (stage < stages_of_datacenter[i]) return datacenters[i];
    stage -= stages_of_datacenter[i];
  }
  TROUPE_INVARIANT(!datacenters.empty(), "the stages of a layout are in datacenters");
  return datacenters.back();
}

std::vector<std::uint32_t> partition(const std::vector<std::uint32_t>& gpus, std::uint32_t stages,
                                     std::uint32_t pipelines, std::uint32_t max_each) {
  std::vector<std::uint32_t> result;
  for (const auto n : gpus) {
    const auto fit = max_each ? std::min(n / pipelines, max_each) : n / pipelines;
    result.push_back(std::min(stages, fit));
    TROUPE_INVARIANT(result.back() * pipelines <= n,
                     "a datacenter's stages have a GPU for each pipeline");
    stages -= result.back();
  }
  return result;
}

expected<pipeline_layout> lay_out_pipelines(const cluster& c, const std::vector<lease_part>& parts,
                                            const job_spec& job, const plan& how) {
  auto layout = place(c, parts, how);
  if (!layout) return layout;
  auto split = parts_of(job, how.stages);
  if (!split) return refuse(split.error());
  layout->parts = std::move(*split);
  return layout;
}

expected<pipeline_layout> lay_out_pipelines(const cluster& c, const allocation& where,
                                            const job_spec& job, const plan& how) {
  return lay_out_pipelines(c, numbered(where), job, how);
}

expected<std::vector<node_index>> nodes_of_stages(const cluster& c, const allocation& where,
                                                  const plan& how) {
  const auto layout = place(c, numbered(where), how);
  if (!layout) return refuse(layout.error());
  return mapped(layout->places, &device_place::node);
}

}  // namespace troupe::planners
