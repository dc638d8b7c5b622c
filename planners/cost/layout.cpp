#include "planners/cost/layout.hpp"

#include <algorithm>

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

/// A datacenter's nodes, in the lease's order.
struct site {
  std::uint32_t datacenter = 0;
  std::vector<stock> stocks;
  std::uint32_t gpus = 0;
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

/// By stage, the index of its site.
using sites_by_stage = std::vector<std::size_t>;

/// Assigns consecutive stages to each datacenter while its GPUs suffice for all pipelines. Fails if
/// that leaves GPUs over: a lease has exactly the plan's GPUs.
expected<sites_by_stage> deal_stages(const cluster& c, const group_view& group,
                                     const std::vector<site>& sites) {
  sites_by_stage where;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const auto& s = sites[i];
    const auto first = where.size();
    std::uint32_t used = 0;
    for (auto next = first; next < group.stages.size(); ++next) {
      const auto more = group.pipelines * group.stages[next].tensor_parallel;
      if (used + more > s.gpus) break;
      used += more;
      where.push_back(i);
    }
    if (used != s.gpus)
      return refuse(reason::kind::invalid,
                    "{} has {} GPUs for {} pipelines, but the {} stages that fit there use {}",
                    c.datacenters[s.datacenter].name, s.gpus, group.pipelines, where.size() - first,
                    used);
  }
  if (where.size() == group.stages.size()) return where;
  return refuse(reason::kind::invalid, "{} of the plan's {} stages have no GPUs",
                group.stages.size() - where.size(), group.stages.size());
}

/// The sites of a group's stages, as the plan names them.
expected<sites_by_stage> named_sites(const cluster& c, const group_view& group, std::size_t number,
                                     const std::vector<site>& sites) {
  sites_by_stage where;
  for (std::size_t s = 0; s < group.stages.size(); ++s) {
    const auto dc = group.stages[s].datacenter;
    if (!dc && sites.size() != 1)
      return refuse(reason::kind::invalid,
                    "stage {} of group {} names no datacenter, and the lease has GPUs in {}", s,
                    number, sites.size());
    if (dc && *dc >= c.datacenters.size())
      return refuse(reason::kind::unknown, "no datacenter has index {}", *dc);
    const auto at = dc ? std::ranges::find(sites, *dc, &site::datacenter) : sites.begin();
    if (at == sites.end())
      return refuse(reason::kind::invalid,
                    "stage {} of group {} is in {}, where the lease has no GPUs", s, number,
                    c.datacenters[*dc].name);
    where.push_back(static_cast<std::size_t>(at - sites.begin()));
  }
  return where;
}

/// Whether a plan's groups are groups of one cut, and agree with what the plan says of all.
expected<void> check_groups(const plan& how, const std::vector<group_view>& groups) {
  if (how.stages.empty() || how.data_parallel == 0 || groups.empty())
    return refuse(reason::kind::invalid, "the plan has no stages, or no pipelines");
  if (!how.groups) return {};
  const auto pipelines = sum_of(groups, [](const auto& g) { return std::uint64_t{g.pipelines}; });
  if (pipelines != how.data_parallel)
    return refuse(reason::kind::invalid, "the plan has {} pipelines, and its groups have {}",
                  how.data_parallel, pipelines);
  if (groups[0].stages != how.stages || groups[0].microbatches != how.microbatches)
    return refuse(reason::kind::invalid, "the plan's stages are not those of its first group");
  const auto same_cut = [](const plan_stage& a, const plan_stage& b) {
    return a.first == b.first && a.count == b.count;
  };
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].pipelines == 0 || groups[g].microbatches == 0)
      return refuse(reason::kind::invalid,
                    "group {} of the plan has {} pipelines of {} micro-batches", g,
                    groups[g].pipelines, groups[g].microbatches);
    if (!std::ranges::equal(groups[g].stages, how.stages, same_cut))
      return refuse(reason::kind::invalid,
                    "group {} of the plan cuts the model at other places than group 0", g);
  }
  return {};
}

/// Takes a stage's GPUs.
expected<device_place> take(const cluster& c, const plan_stage& stage, std::uint32_t number,
                            site& from_site) {
  auto* from = from_site.find(c, stage);
  if (!from)
    return refuse(reason::kind::invalid, "no node of the lease has {} {} left for stage {}",
                  stage.tensor_parallel, stage.gpu ? c.gpus[*stage.gpu].name : "GPUs", number);
  TROUPE_INVARIANT(from->left.size() >= stage.tensor_parallel,
                   "a stage's node has a GPU for each of its ranks");
  const auto end = from->left.begin() + stage.tensor_parallel;
  device_place taken{from->node, {from->left.begin(), end}, from_site.datacenter};
  from->left.erase(from->left.begin(), end);
  return taken;
}

/// Deterministic first fit: a plan and a lease always give the same layout, so that planner and
/// trainer agree without exchanging it.
expected<pipeline_layout> place(const cluster& c, const std::vector<lease_part>& parts,
                                const plan& how) {
  const auto groups = groups_of(how);
  if (auto ok = check_groups(how, groups); !ok) return refuse(ok.error());
  auto sites = sites_of(c, parts);
  if (!sites) return refuse(sites.error());
  const bool named = groups.size() > 1 || std::ranges::any_of(how.stages, [](auto& s) {
                       return s.datacenter.has_value();
                     });
  pipeline_layout layout;
  layout.stages = static_cast<std::uint32_t>(how.stages.size());
  layout.pipelines = how.data_parallel;
  layout.places.reserve(std::size_t{layout.stages} * layout.pipelines);
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    const auto where =
        named ? named_sites(c, groups[g], g, *sites) : deal_stages(c, groups[g], *sites);
    if (!where) return refuse(where.error());
    // A pipeline's consecutive stages share a node; the peers of a stage are then on different
    // nodes, each with its own part of the WAN.
    for (std::uint32_t p = 0; p < groups[g].pipelines; ++p) {
      layout.group_of.push_back(g);
      for (std::uint32_t s = 0; s < layout.stages; ++s) {
        auto taken = take(c, groups[g].stages[s], s, (*sites)[(*where)[s]]);
        if (!taken) return refuse(taken.error());
        layout.places.push_back(std::move(*taken));
      }
    }
  }
  for (const auto& s : *sites)
    if (const auto left = sum_of(s.stocks, [](const stock& x) { return x.left.size(); }); left > 0)
      return refuse(reason::kind::invalid, "the plan leaves {} of {} GPUs in {} without a stage",
                    left, s.gpus, c.datacenters[s.datacenter].name);
  TROUPE_INVARIANT(layout.group_of.size() == layout.pipelines,
                   "each pipeline of a layout is in one group");
  return layout;
}

bool have_equal_parts(const std::vector<plan_stage>& a, const std::vector<plan_stage>& b) {
  return std::ranges::equal(a, b, [](const plan_stage& x, const plan_stage& y) {
    return x.first == y.first && x.count == y.count && x.tensor_parallel == y.tensor_parallel;
  });
}

/// An allocation as a lease with GPUs 0, 1, ... of each node.
std::vector<lease_part> numbered(const allocation& where) {
  std::vector<lease_part> parts;
  for (const auto& share : where)
    parts.push_back({share.node, 0, indices<std::uint16_t>(share.gpus)});
  return parts;
}

}  // namespace

std::vector<std::uint32_t> pipeline_layout::first_pipelines() const {
  std::vector<std::uint32_t> first;
  for (std::uint32_t p = 0; p < pipelines; ++p)
    if (p == 0 || group_of[p] != group_of[p - 1]) first.push_back(p);
  return first;
}

std::vector<std::uint32_t> pipeline_layout::stages_of_datacenter(std::uint32_t pipeline) const {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t s = 0; s < stages; ++s)
    if (s > 0 && !crosses(pipeline, s - 1, s))
      ++numbers.back();
    else
      numbers.push_back(1);
  return numbers;
}

std::vector<std::uint32_t> pipeline_layout::runs_of(std::uint32_t stage) const {
  std::vector<std::uint32_t> first;
  for (std::uint32_t p = 0; p < pipelines; ++p)
    if (p == 0 || datacenter_of(p, stage) != datacenter_of(p - 1, stage)) first.push_back(p);
  return first;
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
  // Groups are often alike but for their datacenters.
  const auto groups = groups_of(how);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (g > 0 && have_equal_parts(groups[g - 1].stages, groups[g].stages)) {
      auto same = layout->parts.back();
      layout->parts.push_back(std::move(same));
      continue;
    }
    auto split = planners::parts_of(job, groups[g].stages);
    if (!split) return refuse(split.error());
    layout->parts.push_back(std::move(*split));
  }
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
