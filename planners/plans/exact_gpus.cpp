#include "planners/plans/exact_gpus.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "messages/base/folds.hpp"
#include "messages/domain/tensor_split.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/measured_memory.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/accumulation.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_nodes.hpp"
#include "planners/plans/has.hpp"
#include "planners/plans/known_types.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/user_request.hpp"

namespace troupe::planners {

// A placement within one datacenter is preferred even on more nodes than one across the WAN.
allocation place_exact(const cluster& c, const idle_index& idle, const job_spec& job,
                       const plan& how) {
  if (sum_of(how.gpu_types, [&](auto g) -> std::uint64_t { return idle.idle_of(g); }) < how.gpus())
    return {};
  const auto ok = [&](const allocation& where) { return within_bounds(c, job, where).has_value(); };
  auto where = exact_nodes{c, idle, job, how, ok}.in_one_datacenter();
  if (!where.empty() || c.datacenters.size() < 2) return where;
  const auto in = [&](const idle_index& part) -> std::optional<allocation> {
    auto found = exact_nodes{c, part, job, how, ok}.anywhere();
    return found.empty() ? std::nullopt : std::optional{std::move(found)};
  };
  return job_places{c, job, std::vector{how}}.first(c, idle, in).value_or(allocation{});
}

std::optional<placed_plan> place_exact(const cluster& c, const idle_index& idle,
                                       const job_view& j) {
  if (!j.plans) return {};
  for (const auto& how : *j.plans) {
    if (how.bytes_per_gpu <= j.history.bytes_floor) continue;
    if (auto where = place_exact(c, idle, *j.spec, how); !where.empty())
      return placed_plan{how, std::move(where)};
  }
  return {};
}

bool can_use(const snapshot& s, node_index n) {
  return std::ranges::find(s.unusable, n, &unusable_node::node) == s.unusable.end();
}

idle_index usable(const snapshot& s) {
  idle_index all{s.cluster};
  for (const auto& u : s.unusable) all.set_idle(u.node, 0);
  return all;
}

bool waits_for_nodes(const snapshot& s, const job_view& j) {
  return !s.unusable.empty() && !place_exact(s.cluster, usable(s), j);
}

// Running out of memory raises the floor; plans at or below it would run out again.
std::optional<reason> why_never(const job_view& j) {
  if (!j.plans || j.plans->empty()) return why_none(j);
  if (std::ranges::any_of(*j.plans,
                          [&](const plan& p) { return p.bytes_per_gpu > j.history.bytes_floor; }))
    return {};
  return reason{reason::kind::infeasible,
                fmt::format("ran out of memory at {:.1f} GB per GPU, and no plan provides more",
                            j.history.bytes_floor / bytes_per_gb)};
}

namespace {

using kind = reason::kind;

/// Plans of a fixed number of GPUs: MARP would choose the number. For each GPU type the fastest
/// (data, tensor) split that fits its memory; several types together only if no single one will do,
/// since a mix runs at the speed of the slowest.
class exact_planner {
 public:
  exact_planner(const cluster& c, const job_spec& job) : c_{c}, job_{job}, whole_{c} {
    for (gpu_index g = 0; g < c.gpus.size(); ++g)
      if (allows(job, c.gpus[g]) && whole_.idle_of(g) > 0) types_.push_back(g);
    splits_ = splits();
  }

  expected<std::vector<plan>> plans() const {
    std::vector<plan> all;
    for (const auto g : types_)
      if (max_of_type(c_, job_, g) >= job_.request.gpus)
        if (auto best = best_on({g})) all.push_back(std::move(*best));
    // GPUs of several types in one datacenter are nearer to each other than those of one type in
    // two.
    if (all.empty() || !spread_notice(c_, job_, all).empty())
      if (auto best = best_on(types_))
        if (all.empty() || spread_notice(c_, job_, {*best}).empty())
          all.push_back(std::move(*best));
    if (all.empty()) return refuse(kind::infeasible, why_none_fits());
    if (auto held = plans_in_groups(c_, job_, std::move(all)); held)
      all = std::move(*held);
    else
      return held;
    if (auto ok = drop_beyond_limits(all); !ok) return refuse(ok.error());
    std::ranges::stable_sort(all, std::greater{}, [&](const plan& p) { return worth(p); });
    return all;
  }

 private:
  /// Data and tensor parallel sizes that suit the batch and the heads; where none do, one replica
  /// per GPU: the program may split in ways of its own, and its number of GPUs is its user's
  /// decision.
  std::vector<plan> splits() const {
    std::vector<plan> out;
    // A tensor group is of one node; of an assumed model there is none.
    const auto widest = job_.assumed.model ? 0 : std::min(job_.request.gpus, largest_node(c_));
    for (std::uint32_t t = 1; t <= widest && job_.request.gpus % t == 0; t *= 2) {
      if (!splits_into(job_.model, t)) break;
      if (job_.request.gpus / t > job_.global_batch) continue;
      out.emplace_back().data_parallel = job_.request.gpus / t;
      out.back().tensor_parallel = t;
    }
    if (out.empty()) out.emplace_back().data_parallel = job_.request.gpus;
    for (auto& p : out)
      p.bytes_per_gpu = program_bytes_on(c_, types_, job_, p.data_parallel, p.tensor_parallel);
    return out;
  }

  /// The fastest split on GPUs of these types that have the memory for it.
  std::optional<plan> best_on(const std::vector<gpu_index>& types) const {
    std::optional<plan> best;
    for (auto how : splits_) {
      for (const auto g : types)
        if (c_.gpus[g].memory_bytes() > how.bytes_per_gpu) how.gpu_types.push_back(g);
      const auto where = place_exact(c_, whole_, job_, how);
      if (where.empty()) continue;
      const auto e = estimate_iteration(c_, job_, how, where);
      set_figures(how, e);
      if (!best || how.samples_per_s > best->samples_per_s) best = std::move(how);
    }
    return best;
  }

  /// The number of GPUs is given, so that samples/s per GPU (objective efficient) is samples/s.
  double worth(const plan& p) const {
    const double cost = job_.objective == "cheapest" ? cost_of_run(job_, p, 1) : 0;
    return cost > 0 ? 1 / cost : p.samples_per_s;
  }

  expected<void> drop_beyond_limits(std::vector<plan>& all) const {
    if (!facts_of(job_).has_known_length) return {};
    const auto run_s = [&](const plan& p) {
      return job_.global_batch / p.samples_per_s * static_cast<double>(job_.iterations);
    };
    const auto price = [&](const plan& p) { return cost_of_run(job_, p); };
    return planners::drop_beyond_limits(job_, all, run_s, price);
  }

  // -- why there is no plan

  std::string needed_gpus(double bytes) const {
    auto text = fmt::format("{} {}", job_.request.gpus,
                            job_.limits.required_gpu_type.empty()
                                ? (job_.request.gpus == 1 ? "GPU" : "GPUs")
                                : job_.limits.required_gpu_type);
    if (facts_of(job_).has_known_memory)
      text += fmt::format(" of more than {:.1f} GB", bytes / bytes_per_gb);
    return text;
  }

  /// The largest smaller number that some nodes have equally; 0: none within 64 of it. For the
  /// message to a user who asked for one GPU too many.
  std::uint32_t next_smaller() const {
    constexpr std::uint32_t tried = 64;
    auto job = job_;
    plan how = splits_.front();
    how.gpu_types = types_;
    how.tensor_parallel = 1;
    for (std::uint32_t i = 1; i < std::min(tried, job_.request.gpus); ++i) {
      job.request.gpus = how.data_parallel = job_.request.gpus - i;
      if (!place_exact(c_, whole_, job, how).empty()) return job.request.gpus;
    }
    return 0;
  }

  /// The split that needs the fewest micro-batches to fit a GPU with that memory, for the message
  /// to a user whose program holds its batch at once; empty: it does not, or none fits.
  std::string with_less_at_once(double max_bytes) const {
    if (job_.assumed.model) return {};
    const plan* found = nullptr;
    std::uint32_t fewest = 0;
    for (const auto& p : splits_) {
      const auto m =
          fewest_micro_batches(c_, types_, job_, p.data_parallel, p.tensor_parallel, max_bytes);
      if (m > 1 && (!found || m < fewest)) found = &p, fewest = m;
    }
    return found ? fewer_at_once_text(job_, found->data_parallel, job_.request.gpus, fewest) : "";
  }

  /// From the hardest obstacle to the mildest: no such type, no GPU with the memory, too few of
  /// them, the quota, and last the shape of the nodes, for which a smaller number may help.
  std::string why_none_fits() const {
    if (c_.gpus.empty() || c_.nodes.empty()) return "the cluster has no GPU";
    if (types_.empty())
      return fmt::format("the cluster has no {} ({}){}", allowed_types(job_), types_key(job_),
                         known_types_text(c_, allowed_types(job_)));
    const auto& smallest = std::ranges::min(splits_, {}, &plan::bytes_per_gpu);
    double largest_gb = 0;
    std::uint64_t enough = 0, allowed = 0;  // GPUs
    for (const auto g : types_) {
      const auto& gpu = c_.gpus[g];
      largest_gb = std::max(largest_gb, gpu.memory_gb);
      if (!(gpu.memory_bytes() > smallest.bytes_per_gpu)) continue;
      enough += whole_.idle_of(g);
      allowed += gpu.quota > 0 ? std::min(gpu.quota, whole_.idle_of(g)) : whole_.idle_of(g);
    }
    const auto needed = needed_gpus(smallest.bytes_per_gpu);
    if (enough == 0)
      return fmt::format("needs more than {:.1f} GB per GPU; the largest here has {:g} GB{}",
                         smallest.bytes_per_gpu / bytes_per_gb, largest_gb,
                         with_less_at_once(largest_gb * bytes_per_gb));
    if (enough < job_.request.gpus)
      return fmt::format("needs {}; the cluster has {}", needed, enough);
    if (allowed < job_.request.gpus)
      return fmt::format("needs {}; a job may have {} (quota)", needed, allowed);
    const auto fewer = next_smaller();
    const auto instead = fewer > 0 ? fmt::format("; {} would fit", fewer) : "";
    if (const auto apart = unlinked_text(c_); !apart.empty() && would_fit_if_linked())
      return fmt::format(
          "needs {}, and a program is never spread over datacenters without a link: these GPUs are "
          "in {}{}",
          needed, apart, instead);
    if (job_.request.unequal.value_or(false))
      return fmt::format("needs {}, and no nodes of the cluster have that{}", needed, instead);
    return fmt::format(
        "needs {}, the same number on each node, which no nodes of the cluster have{} "
        "(`unequal: true` permits numbers that differ)",
        needed, instead);
  }

  bool would_fit_if_linked() const {
    auto all_linked = c_;
    all_linked.wan.clear();
    for (std::uint32_t b = 0; b < c_.datacenters.size(); ++b)
      for (std::uint32_t a = 0; a < b; ++a) {
        auto& w = all_linked.wan.emplace_back();
        w.a = a;
        w.b = b;
      }
    auto how = splits_.front();
    how.gpu_types = types_;
    how.data_parallel = job_.request.gpus;
    how.tensor_parallel = 1;
    return !place_exact(all_linked, whole_, job_, how).empty();
  }

  const cluster& c_;
  const job_spec& job_;
  std::vector<plan> splits_;  // with their memory
  idle_index whole_;
  std::vector<gpu_index> types_;  // that it may use
};

}  // namespace

expected<std::vector<plan>> exact_plans(const cluster& c, const job_spec& job) {
  if (job.request.gpus == 0) return refuse(kind::invalid, "requests no GPU");
  return exact_planner{c, job}.plans();
}

}  // namespace troupe::planners
