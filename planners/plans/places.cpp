#include "planners/plans/places.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/exact_nodes.hpp"

namespace troupe::planners {

namespace {

using kind = reason::kind;

/// Whether the group's nodes of one type have as many GPUs each as divide their number: what
/// exact_nodes finds, without an index of all nodes.
bool have_equal(const cluster& c, const datacenter_group& group, gpu_index g, std::uint32_t gpus) {
  std::vector<std::uint32_t> sizes;
  for (const auto& n : c.nodes)
    if (n.gpu == g && n.gpus > 0 && group[n.datacenter]) sizes.push_back(n.gpus);
  for (std::uint32_t nodes = 1; nodes <= std::min<std::size_t>(gpus, sizes.size()); ++nodes)
    if (gpus % nodes == 0 &&
        std::ranges::count_if(sizes, [&](auto size) { return size >= gpus / nodes; }) >= nodes)
      return true;
  return false;
}

/// Whether one of these groups has the GPUs of a plan, all of its nodes counted.
bool hold(const cluster& c, const std::vector<datacenter_group>& groups, const job_spec& job,
          const plan& how) {
  const bool exact = facts_of(job).exact_gpus;
  return std::ranges::any_of(groups, [&](const datacenter_group& group) {
    const auto* only = how.gpu_types.size() == 1 ? &how.gpu_types[0] : nullptr;
    if (exact && only && !job.request.unequal.value_or(false))
      return how.gpus() <= max_of_type(c, job, *only) && have_equal(c, group, *only, how.gpus());
    if (exact) {
      // Whether the group is one datacenter is the caller's question.
      const auto ok = [&](const allocation& where) {
        return within_numbers(c, job, where).has_value();
      };
      const auto idle = idle_in(c, idle_index{c}, group);
      const exact_nodes nodes{c, idle, job, how, ok};
      return !nodes.in_one_datacenter().empty() || !nodes.anywhere().empty();
    }
    std::uint64_t gpus = 0;
    for (const auto g : how.gpu_types)
      if (allows(job, c.gpus[g]) && c.gpus[g].memory_bytes() > how.bytes_per_gpu)
        gpus += std::min<std::uint64_t>(gpus_in(c, g, group), max_of_type(c, job, g));
    return gpus >= how.gpus();
  });
}

/// By the parts of an allocation, in its order.
std::vector<std::uint32_t> datacenters_of(const cluster& c, const allocation& where) {
  std::vector<std::uint32_t> out;
  for (const auto& share : where)
    if (const auto d = c.nodes[share.node].datacenter; std::ranges::find(out, d) == out.end())
      out.push_back(d);
  return out;
}

/// Only programs are kept inside one datacenter: a training's pipelines are made for a WAN, and
/// simulated work is of traces that say nothing about it.
bool prefers_one(const job_spec& job) {
  return facts_of(job).keeps_to_datacenter && !job.request.across_datacenters.value_or(false);
}

/// A datacenter with as many GPUs of these types as the allocation has, for which it need not be
/// spread.
std::optional<std::uint32_t> large_enough(const cluster& c, const job_spec& job,
                                          const allocation& where) {
  plan how;
  how.data_parallel = total_gpus(where);
  double memory = 0;
  for (const auto& share : where) {
    const auto g = c.nodes[share.node].gpu;
    if (std::ranges::find(how.gpu_types, g) == how.gpu_types.end()) how.gpu_types.push_back(g);
    const auto bytes = c.gpus[g].memory_bytes();
    memory = memory == 0 ? bytes : std::min(memory, bytes);
  }
  how.bytes_per_gpu = memory * 0.999;
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    if (hold(c, {group_of(c, {d})}, job, how)) return d;
  return {};
}

}  // namespace

job_places::job_places(const cluster& c, const job_spec& job, bool one_is_enough) {
  if (c.datacenters.size() < 2) return;
  const link_graph g{c};
  if (g.used.size() < 2) return;
  if (one_is_enough && prefers_one(job))
    groups_ = each_alone(c, g);
  else if (!g.all_linked())
    groups_ = linked_groups(c);
}

job_places::job_places(const cluster& c, const job_spec& job, const std::vector<plan>& plans,
                       double bytes_floor)
    : job_places{c, job, true} {
  if (anywhere() || !prefers_one(job)) return;
  const auto may_have = [&](const plan& p) {
    return p.bytes_per_gpu > bytes_floor && hold(c, groups_, job, p);
  };
  if (std::ranges::none_of(plans, may_have)) *this = job_places{c, job, false};
}

std::uint64_t job_places::max_gpus(const cluster& c, const job_spec& job,
                                   const std::vector<gpu_index>& types) const {
  const auto in = [&](const datacenter_group& group) {
    return sum_of(types, [&](gpu_index g) {
      return std::min<std::uint64_t>(gpus_in(c, g, group), max_of_type(c, job, g));
    });
  };
  if (anywhere()) return in(datacenter_group(c.datacenters.size(), true));
  return max_of(groups_, std::uint64_t{0}, in);
}

job_places places_of_request(const cluster& c, const job_spec& job, std::uint32_t gpus,
                             const std::vector<gpu_index>& types) {
  plan wish;
  wish.data_parallel = gpus;
  wish.bytes_per_gpu = 1;  // any memory
  wish.gpu_types = types;
  return job_places{c, job, std::vector{wish}};
}

std::string holder_of(const cluster& c, const job_spec& job) {
  if (job_places{c, job, false}.anywhere()) return "the cluster has";
  return fmt::format("its GPUs are in {}, and those that it may have together are",
                     unlinked_text(c));
}

expected<std::vector<plan>> plans_in_groups(const cluster& c, const job_spec& job,
                                            expected<std::vector<plan>> plans) {
  if (!plans || plans->empty()) return plans;
  const job_places places{c, job, *plans};
  if (places.anywhere()) return plans;
  const auto fewest = std::ranges::min(*plans, {}, [](const plan& p) { return p.gpus(); }).gpus();
  std::erase_if(
      *plans, [&](const plan& p) { return p.stages.empty() && !hold(c, places.groups(), job, p); });
  if (!plans->empty()) return plans;
  return refuse(kind::infeasible,
                "needs at least {} GPUs, and no datacenters that are linked have them: they are in "
                "{}",
                fewest, unlinked_text(c));
}

expected<void> within_places(const cluster& c, const job_spec& job, const allocation& where) {
  if (c.datacenters.size() < 2) return {};
  const auto used = datacenters_of(c, where);
  if (used.size() < 2) return {};
  for (const auto a : used)
    for (const auto b : used)
      if (a < b && !wan_between(c, a, b))
        return refuse(kind::infeasible, "uses GPUs of {} and {}, which have no link (wan)",
                      c.datacenters[a].name, c.datacenters[b].name);
  if (!prefers_one(job)) return {};
  if (const auto d = large_enough(c, job, where))
    return refuse(kind::invalid,
                  "uses GPUs of {}; {} is large enough for it by itself, and a program is spread "
                  "over datacenters only with `across_datacenters: true`",
                  names_of(c, used), c.datacenters[*d].name);
  return {};
}

expected<void> within_bounds(const cluster& c, const job_spec& job, const allocation& where) {
  if (auto ok = within_numbers(c, job, where); !ok) return ok;
  return within_places(c, job, where);
}

allocation find_for_program(const free_gpus& free, const gpu_pool& pool, std::uint32_t gpus,
                            const job_spec& job) {
  auto where = free.find_equal(pool, gpus);
  if (!where.empty() || !job.request.unequal.value_or(false)) return where;
  auto by_free = pool.nodes;
  std::ranges::stable_sort(by_free, std::greater{}, [&](node_index n) { return free.of(n); });
  for (const auto n : by_free) {
    const auto take = std::min(gpus, free.of(n));
    if (take == 0) break;
    where.push_back({n, take});
    gpus -= take;
  }
  return gpus == 0 ? where : allocation{};
}

std::string spread_notice(const cluster& c, const job_spec& job, const std::vector<plan>& plans) {
  if (!facts_of(job).keeps_to_datacenter || plans.empty() || c.datacenters.size() < 2) return {};
  const link_graph g{c};
  if (g.used.size() < 2) return {};
  const auto alone = each_alone(c, g);
  if (std::ranges::any_of(plans, [&](const plan& p) { return hold(c, alone, job, p); })) return {};
  return fmt::format("{}: its {} GPUs are of several, and its processes talk over the WAN ({})",
                     spread_words, plans.front().gpus(), names_of(c, g.used));
}

}  // namespace troupe::planners
