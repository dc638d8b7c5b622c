// Opportunistic (docs/planners/baselines.md): in order of arrival, the user's number of the fastest
// idle GPUs; a job that runs out of memory is retried on GPUs with more memory, and where there are
// not enough of them, on twice as many. The trial-and-error baseline of Frenzy's paper.

#include <algorithm>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/user_request.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::planners {
namespace {

using kind = reason::kind;

/// The request of a job's next attempt.
struct next_attempt {
  std::uint32_t gpus = 0;
  std::vector<gpu_index> types;  // allowed ones, fastest first
  bool larger = false;           // the same number, with more memory than the smallest so far
};

/// The requests that jobs can still make on a cluster, after their earlier attempts. A user without
/// a memory model tries the fastest GPUs, then the same number of larger ones, and only then more
/// of them: twice as many, which need less memory each. Each failure costs an attempt, and that is
/// what Frenzy's prediction saves.
class opportunistic_attempts {
 public:
  explicit opportunistic_attempts(const cluster& c)
      : c_{c}, types_{fastest_first(c)}, gpus_(c.gpus.size()) {
    for (const auto& n : c.nodes) gpus_[n.gpu] += n.gpus;
  }

  const std::vector<gpu_index>& types() const { return types_; }
  /// The cluster's GPUs that the job may use at a time.
  std::uint64_t max(const job_spec& job) const { return max_of(job, types_); }

  /// Why no attempt remains; empty: one does.
  std::optional<reason> hopeless(const job_view& j) const {
    if (j.facts().exact_gpus) return why_never(j);
    const auto all = max(*j.spec);
    if (j.spec->request.gpus == 0) return reason{kind::invalid, "requests no GPU"};
    if (j.spec->request.gpus > all) {
      return because(kind::infeasible, "requests {} GPUs; {} {}{}{}", j.spec->request.gpus,
                     holder_of(c_, *j.spec), all,
                     j.spec->limits.required_gpu_type.empty() ? "" : " ",
                     j.spec->limits.required_gpu_type);
    }
    if (j.history.out_of_memory == 0 || tried(j) < all || next(j).larger) return {};
    return because(kind::infeasible, "ran out of memory on all {} GPUs {}", all,
                   j.spec->limits.max_gpus || !j.spec->limits.required_gpu_type.empty()
                       ? fmt::format("that it may use ({}, gpu_type)", bound_key(*j.spec))
                       : "of the cluster");
  }

  next_attempt next(const job_view& j) const {
    if (j.history.out_of_memory == 0) return {j.spec->request.gpus, types_, false};
    const auto gpus = tried(j);
    if (j.history.tried_gpus > 0) {
      auto larger = with_memory([&](double bytes) { return bytes > j.history.tried_bytes; });
      if (max_of(*j.spec, larger) >= gpus)
        return {static_cast<std::uint32_t>(gpus), std::move(larger), true};
    }
    const auto more = std::min(2 * gpus, max(*j.spec));
    return {static_cast<std::uint32_t>(more), largest(*j.spec, more), false};
  }

 private:
  // The number of GPUs that did not suffice. Journals of older versions do not have it: an attempt
  // then had the user's number, doubled by each attempt before it.
  static std::uint64_t tried(const job_view& j) {
    if (j.history.tried_gpus > 0) return j.history.tried_gpus;
    return std::uint64_t{j.spec->request.gpus} << std::min(j.history.out_of_memory - 1, 31u);
  }

  std::uint64_t max_of(const job_spec& job, const std::vector<gpu_index>& types) const {
    std::uint64_t sum = 0;
    if (const auto places = places_of_request(c_, job, job.request.gpus, types_);
        !places.anywhere())
      sum = places.max_gpus(c_, job, types);
    else
      for (const auto g : types) sum += std::min<std::uint64_t>(gpus_[g], max_of_type(c_, job, g));
    return std::min<std::uint64_t>(sum, job.limits.max_gpus.value_or(std::uint32_t(-1)));
  }

  template <class Condition>
  std::vector<gpu_index> with_memory(Condition enough) const {
    std::vector<gpu_index> some;
    for (const auto g : types_)
      if (enough(c_.gpus[g].memory_bytes())) some.push_back(g);
    return some;
  }

  // The types with the most memory that together have `gpus` GPUs for the job.
  std::vector<gpu_index> largest(const job_spec& job, std::uint64_t gpus) const {
    auto min = types_;
    std::ranges::sort(min, std::greater{}, [&](gpu_index g) { return c_.gpus[g].memory_bytes(); });
    for (const auto last : min) {
      auto some = with_memory([&](double bytes) { return bytes >= c_.gpus[last].memory_bytes(); });
      if (max_of(job, some) >= gpus) return some;
    }
    return types_;
  }

  const cluster& c_;
  std::vector<gpu_index> types_;     // all, fastest first
  std::vector<std::uint64_t> gpus_;  // by type
};

std::uint64_t idle_of(const idle_index& idle, const std::vector<gpu_index>& types) {
  std::uint64_t sum = 0;
  for (const auto g : types) sum += idle.idle_of(g);
  return sum;
}

class opportunistic : public queue_policy {
 public:
  std::string_view name() const override { return "opportunistic"; }
  /// Whether a job has plans depends on its request.
  policy_traits traits() const override {
    return {.plans_by_request = true, .starts_requested_number = true};
  }

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    if (const auto wish = placed_by_request(job))
      if (auto why = opportunistic_attempts{c}.hopeless(*wish)) return refuse(std::move(*why));
    return policy::plans_of(c, job, budget);
  }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<decision> out;
    if (s.waiting.empty() || s.idle.total_idle() == 0) return out;
    const opportunistic_attempts attempts{s.cluster};
    const auto max_tensor = largest_node(s.cluster);
    remaining_idle idle{s.idle};
    for (const auto* j : in_order(s.waiting)) {
      if (idle->total_idle() == 0) break;
      if (auto why = attempts.hopeless(*j)) {
        out.push_back(give_up(j->id, std::move(*why)));
        continue;
      }
      auto start = j->facts().exact_gpus ? place_exact(s.cluster, *idle, *j)
                                         : attempt(s.cluster, *idle, *j, attempts, max_tensor);
      if (!start) continue;  // a smaller job behind it may go first
      idle.take(start->where);
      out.push_back(start_job(j->id, std::move(start->how), std::move(start->where)));
    }
    return out;
  }

 private:
  reason why_waits(const snapshot& s, const job_view& j) const override {
    const opportunistic_attempts attempts{s.cluster};
    if (auto why = attempts.hopeless(j)) return *why;
    const auto next = attempts.next(j);
    std::optional<idle_index> restricted;
    const auto idle = idle_of(allowed_idle(s.cluster, s.idle, *j.spec, restricted), next.types);
    return because(kind::insufficient, "needs {} GPUs{}; {} are idle", next.gpus,
                   why_these(s.cluster, j, next), idle);
  }

  static std::optional<placed_plan> attempt(const cluster& c, const idle_index& idle,
                                            const job_view& j,
                                            const opportunistic_attempts& attempts,
                                            std::uint32_t max_tensor) {
    const auto next = attempts.next(j);
    const auto places = places_of_request(c, *j.spec, j.spec->request.gpus, attempts.types());
    auto where = job_rooms{c, *j.spec, places, idle}.first(
        [&](const idle_index& some) { return fastest_idle(some, next.gpus, next.types); });
    if (!where) return {};
    auto how = split_for(c, *j.spec, *where, j.history.bytes_floor, max_tensor);
    return placed_plan{in_its_layout(j, std::move(how)), std::move(*where)};
  }
  static std::string why_these(const cluster& c, const job_view& j, const next_attempt& next) {
    if (j.history.out_of_memory == 0) return {};
    if (next.larger)
      return fmt::format(" of more than {:.1f} GB (ran out of memory on {} of {:.1f} GB)",
                         j.history.tried_bytes / bytes_per_gb, j.history.tried_gpus,
                         j.history.tried_bytes / bytes_per_gb);
    TROUPE_INVARIANT(!next.types.empty(), "a job that is not hopeless may have some type of GPU");
    double min = c.gpus[next.types.front()].memory_bytes();
    for (const auto g : next.types) min = std::min(min, c.gpus[g].memory_bytes());
    const auto ran_out =
        j.history.tried_gpus > 0
            ? fmt::format("on {}, and larger ones are too few", j.history.tried_gpus)
            : fmt::format("{} times", j.history.out_of_memory);
    return fmt::format(" of at least {:.1f} GB ({} requested, ran out of memory {})",
                       min / bytes_per_gb, j.spec->request.gpus, ran_out);
  }
};

}  // namespace

std::unique_ptr<policy> make_opportunistic() {
  return std::make_unique<opportunistic>();
}

}  // namespace troupe::planners
