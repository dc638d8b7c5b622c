#include "planners/plans/marp.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/domain/tensor_split.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cost/measured_memory.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/accumulation.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/known_types.hpp"

namespace troupe::planners {
namespace {

using kind = reason::kind;

// Frenzy, section IV.A: memory per GPU is a closed form of the data and tensor parallel sizes
// (model/stage_memory.hpp), so that all splits can be enumerated: divisors of the batch times
// powers of two within a node. The paper leaves the order of the plans open; here a plan is rated
// on the worst of the types that can hold it, because HAS may give it any of them
// (docs/planners/marp.md).

// Cached properties of a GPU type.
struct type_facts {
  std::vector<node_index> nodes;  // largest first
  std::uint64_t gpus = 0;
};

struct candidate {
  plan how;
  double slowest_iteration_s = 0;  // over the feasible types
  double dearest_run = 0;          // likewise
  double score = 0;                // larger is better
};

// Job files are checked before; studies and plug-ins call this with specs of their own.
expected<void> check(const cluster& c, const job_spec& job) {
  const auto& m = job.model;
  if (c.gpus.empty() || c.nodes.empty()) return refuse(kind::infeasible, "the cluster has no GPU");
  if (job.global_batch == 0) return refuse(kind::invalid, "global_batch is 0");
  if (m.operators.empty() && (m.hidden == 0 || m.layers == 0 || m.heads == 0 || m.sequence == 0))
    return refuse(kind::invalid,
                  "model '{}' has neither operators nor all of hidden, layers, "
                  "heads and sequence",
                  m.name);
  if (job.objective != "efficient" && job.objective != "fastest" && job.objective != "cheapest")
    return refuse(kind::invalid, "unknown objective '{}'; known: efficient, fastest, cheapest",
                  job.objective);
  return {};
}

// Packed on the type's own nodes, the largest first: how well a job does on scattered GPUs is not
// known when it is submitted.
//
// Computes speed and price of a plan on each feasible type, and its score.
void estimate(const cluster& c, const job_spec& job, const std::vector<type_facts>& types,
              candidate& x) {
  auto& how = x.how;
  how.samples_per_s = how.cost_per_hour = std::numeric_limits<double>::infinity();
  double dearest_traffic = 0;
  for (const auto g : how.gpu_types) {
    const auto e = estimate_iteration(c, job, how, pack(c, types[g].nodes, how.gpus()));
    how.samples_per_s = std::min(how.samples_per_s, e.samples_per_s);
    how.cost_per_hour = std::min(how.cost_per_hour, e.cost_per_hour);
    x.slowest_iteration_s = std::max(x.slowest_iteration_s, e.iteration_s);
    dearest_traffic = std::max(dearest_traffic, e.traffic_per_iteration);
    x.dearest_run =
        std::max(x.dearest_run, cost_of_run(static_cast<double>(job.iterations), e.iteration_s,
                                            e.cost_per_hour, e.traffic_per_iteration));
  }
  set_traffic(how, dearest_traffic);
  x.score = job.objective == "fastest"    ? how.samples_per_s
            : job.objective == "cheapest" ? -x.dearest_run
                                          : how.samples_per_s / how.gpus();
}

// Ties go to the plan that leaves more to others: fewer GPUs, less memory, smaller tensor groups.
bool better(const candidate& a, const candidate& b) {
  const auto key = [](const candidate& x) {
    return std::tuple(-x.score, x.how.gpus(), x.how.bytes_per_gpu, x.how.tensor_parallel);
  };
  return key(a) < key(b);
}

// Why no plan of any size is feasible, by memory and number of GPUs.
std::string none_fits(const cluster& c, const job_spec& job, const std::string& too_many,
                      double min_bytes) {
  if (!too_many.empty()) return too_many;
  double largest = 0;
  for (const auto& n : c.nodes)
    if (n.gpus > 0 && allows(job, c.gpus[n.gpu]))
      largest = std::max(largest, c.gpus[n.gpu].memory_gb);
  if (largest == 0)
    return fmt::format("the cluster has no {} ({}){}", allowed_types(job), types_key(job),
                       known_types_text(c, allowed_types(job)));
  return fmt::format("needs at least {:.1f} GB per GPU; the largest here has {:g} GB",
                     min_bytes / bytes_per_gb, largest);
}

std::vector<type_facts> types_of(const cluster& c, const job_spec& job) {
  std::vector<type_facts> types(c.gpus.size());
  for (gpu_index g = 0; g < types.size(); ++g) {
    if (!allows(job, c.gpus[g])) continue;
    types[g].nodes = nodes_of_type(c, g);
    for (const auto n : types[g].nodes) types[g].gpus += c.nodes[n].gpus;
    if (c.gpus[g].quota > 0)
      types[g].gpus = std::min<std::uint64_t>(types[g].gpus, c.gpus[g].quota);
  }
  return types;
}

/// Visits every split, the smallest first: the first one that would fit but for the number of GPUs
/// explains a refusal best.
class split_search {
 public:
  split_search(const cluster& c, const job_spec& job, planning_budget& budget)
      : c_{c}, job_{job}, budget_{budget}, types_{types_of(c, job)} {
    for (gpu_index g = 0; g < types_.size(); ++g)
      if (types_[g].gpus > 0) present_.push_back(g);
  }

  /// `accumulates`: gradients of micro-batches are summed, which the plans choose.
  std::vector<candidate> run(bool accumulates) {
    std::vector<candidate> all;
    too_many_.clear();
    min_bytes_ = std::numeric_limits<double>::infinity();
    std::uint32_t node_gpus = 0;
    for (const auto& t : types_)
      if (!t.nodes.empty()) node_gpus = std::max(node_gpus, c_.nodes[t.nodes[0]].gpus);
    const auto units = 200 * (1 + job_.model.operators.size()) * (1 + types_.size());
    for (std::uint32_t t = 1; t <= node_gpus; t *= 2) {
      if (!splits_into(job_.model, t)) break;
      for (const auto d : divisors(job_.global_batch))
        for (const auto m : accumulates ? micro_batches(d, t) : std::vector{0U}) {
          if (!budget_.spend(units)) return all;
          if (auto x = with_gpus(d, t, m)) all.push_back(std::move(*x));
        }
    }
    return all;
  }

  /// Why there is none: by memory and number of GPUs.
  std::string why_none() const { return none_fits(c_, job_, too_many_, min_bytes_); }

 private:
  double bytes_of(std::uint32_t d, std::uint32_t t, std::uint32_t m) const {
    return program_bytes_on(c_, present_, job_, d, t, m);
  }

  /// Numbers of micro-batches of a replica: for each GPU type the least with which it has the
  /// memory, since larger products are faster; where none has it, as many as there are samples.
  std::vector<std::uint32_t> micro_batches(std::uint32_t d, std::uint32_t t) const {
    std::vector<std::uint32_t> out;
    for (gpu_index g = 0; g < types_.size(); ++g) {
      if (types_[g].gpus == 0) continue;
      auto m = fewest_micro_batches(c_, present_, job_, d, t, c_.gpus[g].memory_bytes());
      if (m == 0) m = job_.global_batch / d;
      if (std::ranges::find(out, m) == out.end()) out.push_back(m);
    }
    return out;
  }

  /// The split on the types that hold it; none: they do not, or are too few.
  std::optional<candidate> with_gpus(std::uint32_t d, std::uint32_t t, std::uint32_t m) {
    candidate x;
    auto& how = x.how;
    how.data_parallel = d;
    how.tensor_parallel = t;
    how.bytes_per_gpu = bytes_of(d, t, m);
    how.microbatches = m;
    how.rows = m > 0 ? job_.global_batch / d / m : 0;
    min_bytes_ = std::min(min_bytes_, how.bytes_per_gpu);
    std::uint64_t gpus = 0, groups = 0;
    for (gpu_index g = 0; g < types_.size(); ++g) {
      const auto& type = types_[g];
      if (type.gpus == 0 || !(c_.gpus[g].memory_bytes() > how.bytes_per_gpu)) continue;
      how.gpu_types.push_back(g);
      gpus += type.gpus;
      std::uint64_t whole = 0;
      for (const auto n : type.nodes) whole += c_.nodes[n].gpus / t;
      groups += std::min(whole, type.gpus / t);
    }
    // Enough whole groups on nodes exist: policies then never split one.
    how.tensor_in_node = groups >= d;
    if (gpus == 0) return {};
    const bool bound = job_.limits.max_gpus && *job_.limits.max_gpus < gpus;
    if (std::uint64_t{d} * t > (bound ? *job_.limits.max_gpus : gpus)) {
      if (too_many_.empty())
        too_many_ =
            fmt::format("needs {} GPUs of at least {:.1f} GB; the {} {}", std::uint64_t{d} * t,
                        how.bytes_per_gpu / bytes_per_gb, bound ? "job allows" : "cluster has",
                        bound ? fmt::format("{} ({})", *job_.limits.max_gpus, bound_key(job_))
                              : fmt::to_string(gpus));
      return {};
    }
    estimate(c_, job_, types_, x);
    return x;
  }

  const cluster& c_;
  const job_spec& job_;
  planning_budget& budget_;
  std::vector<type_facts> types_;
  std::vector<gpu_index> present_;
  double min_bytes_ = std::numeric_limits<double>::infinity();
  std::string too_many_;  // about the first plan that fits the memory but needs too many GPUs
};

/// The micro-batches that would do, for a job whose own are more than any GPU holds; empty:
/// something else is the reason.
std::string with_less_at_once(const cluster& c, const job_spec& job, planning_budget& budget) {
  if (may_accumulate(job) || (job.memory && job.memory->gb > 0)) return {};
  const auto found = split_search{c, job, budget}.run(true);
  if (found.empty()) return {};
  const auto& how = std::ranges::min(found, {}, [](const candidate& x) {
                      return std::pair(x.how.gpus(), x.how.bytes_per_gpu);
                    }).how;
  return fewer_at_once_text(job, how.data_parallel, how.gpus(), how.microbatches);
}

}  // namespace

expected<std::vector<plan>> marp(const cluster& c, const job_spec& job, planning_budget& budget) {
  if (auto ok = check(c, job); !ok) return refuse(ok.error());
  ++searches_made;
  split_search search{c, job, budget};
  auto all = search.run(false);
  if (all.empty() && may_accumulate(job)) all = search.run(true);
  if (all.empty() && budget.exhausted()) return refuse(budget.none_found());
  if (all.empty())
    return refuse(kind::infeasible, search.why_none() + with_less_at_once(c, job, budget));
  const auto run_s = [&](const candidate& x) {
    return x.slowest_iteration_s * static_cast<double>(job.iterations);
  };
  if (auto ok = drop_beyond_limits(job, all, run_s, std::mem_fn(&candidate::dearest_run)); !ok)
    return refuse(ok.error());
  std::ranges::stable_sort(all, better);
  std::vector<plan> plans;
  for (auto& x : all) plans.push_back(std::move(x.how));
  return plans;
}

}  // namespace troupe::planners
