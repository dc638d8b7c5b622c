// First come, first served (docs/planners/baselines.md): the user's number and type of GPUs, in
// order; a job that cannot start blocks all jobs after it. The policy of a plain batch queue,
// without backfilling. It never changes a request: a job that runs out of memory is given up, and
// one that asks for more than the cluster has is refused at once, for it would block the queue for
// ever.

#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/places.hpp"
#include "planners/plans/user_request.hpp"
#include "planners/policy/elastic_jobs.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::planners {
namespace {

using kind = reason::kind;

// The user's request, within the job's limits.
struct request {
  std::uint32_t gpus = 0;
  std::string type;  // empty: any
};

request request_of(const job_spec& job) {
  return {std::min(job.request.gpus, job.limits.max_gpus.value_or(job.request.gpus)),
          job.limits.required_gpu_type.empty() ? job.request.type : job.limits.required_gpu_type};
}

// Constant for a cluster: computed once per pass.
struct supply {
  std::vector<gpu_index> types;                // fastest first
  std::vector<std::uint64_t> gpus;             // by type: idle or not, within its quota
  std::vector<std::vector<node_index>> nodes;  // by type: largest first
  std::uint32_t max_tensor = 1;

  explicit supply(const cluster& c)
      : types(fastest_first(c)), gpus(c.gpus.size()), max_tensor(largest_node(c)) {
    for (const auto& n : c.nodes) gpus[n.gpu] += n.gpus;
    for (gpu_index g = 0; g < c.gpus.size(); ++g) {
      nodes.push_back(nodes_of_type(c, g));
      if (const auto quota = c.gpus[g].quota; quota > 0)
        gpus[g] = std::min<std::uint64_t>(gpus[g], quota);
    }
  }
};

/// The type that a request names, or all, fastest first.
std::vector<gpu_index> named_types(const cluster& c, const supply& all, const request& r) {
  std::vector<gpu_index> named;
  for (const auto g : all.types)
    if (r.type.empty() || c.gpus[g].name == r.type) named.push_back(g);
  return named;
}

// The types that could hold all of this job: of the one that it names, or of all. Empty: only
// several types together could. Fails if the request can never be met.
expected<std::vector<gpu_index>> types_for(const cluster& c, const supply& all, const job_view& j) {
  const auto job = request_of(*j.spec);
  if (job.gpus == 0) return refuse(kind::invalid, "requests no GPU");
  if (j.history.out_of_memory > 0) {
    return refuse(kind::infeasible, "ran out of memory on the {} GPUs it requested", job.gpus);
  }
  if (j.facts().exact_gpus) {
    if (auto why = why_never(j)) return refuse(std::move(*why));
    return std::vector<gpu_index>{};
  }
  const auto named = named_types(c, all, job);
  std::vector<gpu_index> out;
  std::uint64_t sum = 0;
  const auto places = places_of_request(c, *j.spec, job.gpus, named);
  for (const auto g : named) {
    sum += all.gpus[g];
    if ((places.anywhere() ? all.gpus[g] : places.max_gpus(c, *j.spec, {g})) >= job.gpus)
      out.push_back(g);
  }
  if (!places.anywhere()) sum = places.max_gpus(c, *j.spec, named);
  if (sum < job.gpus) {
    return refuse(kind::infeasible, "requests {} {}; {} {}", job.gpus,
                  job.type.empty() ? std::string("GPUs") : job.type, holder_of(c, *j.spec), sum);
  }
  return out;
}

std::optional<decision> start(const cluster& c, const idle_index& all_idle, const supply& all,
                              const job_view& j, const std::vector<gpu_index>& types) {
  const auto& job = *j.spec;
  if (facts_of(job).exact_gpus) {
    auto p = place_exact(c, all_idle, j);
    if (!p) return {};
    return start_job(j.id, std::move(p->how), std::move(p->where));
  }
  const auto gpus = request_of(job).gpus;
  std::optional<idle_index> restricted;
  const auto& idle = allowed_idle(c, all_idle, job, restricted);
  if (idle.total_idle() < gpus) return {};
  const auto on = [&](const allocation& where) {
    return start_job(j.id, in_its_layout(j, split_for(c, job, where, 0, all.max_tensor)), where);
  };
  const auto places = places_of_request(c, job, gpus, named_types(c, all, request_of(job)));
  const job_rooms rooms{c, job, places, all_idle};
  if (types.empty()) {
    const auto where =
        rooms.first([&](const idle_index& some) { return fastest_idle(some, gpus, all.types); });
    return where ? std::optional(on(*where)) : std::nullopt;
  }
  std::optional<decision> blind;
  // Some type has the memory, idle or not: the job waits for it rather than start on one that is
  // too small.
  bool one_could = false;
  for (const auto g : types) {
    const auto where = rooms.first([&](const idle_index& some) -> std::optional<allocation> {
      return some.idle_of(g) >= gpus ? fastest_idle(some, gpus, {g}) : std::nullopt;
    });
    auto d = on(where ? *where : pack(c, all.nodes[g], gpus));
    const bool holds = d.how.bytes_per_gpu > 0;
    if (where && holds) return d;
    if (where && !blind) blind = std::move(d);
    one_could |= holds;
  }
  // No type has the memory: the user's request counts, and the job will run out of memory.
  return one_could ? std::nullopt : blind;
}

class fcfs : public queue_policy {
 public:
  std::string_view name() const override { return "fcfs"; }
  /// Whether a job has plans depends on its request.
  policy_traits traits() const override {
    return {.plans_by_request = true, .starts_requested_number = true};
  }

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    if (const auto wish = placed_by_request(job))
      if (auto types = types_for(c, supply{c}, *wish); !types) return refuse(types.error());
    return policy::plans_of(c, job, budget);
  }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<decision> out;
    if (s.waiting.empty()) return out;
    const supply all(s.cluster);
    remaining_idle idle{s.idle};
    const job_view* head = nullptr;  // the first that waits on
    bool blocked = false;
    for (const auto* j : in_order(s.waiting)) {
      if (blocked) {
        s.note(j->id, wait_code::blocked, static_cast<double>(head->id));
        continue;
      }
      const auto types = types_for(s.cluster, all, *j);
      if (!types) {
        out.push_back(give_up(j->id, types.error()));
        continue;
      }
      auto d = start(s.cluster, *idle, all, *j, *types);
      if (!d) {
        if (!head) head = j;
        s.note(j->id, head == j ? wait_code::too_few : wait_code::blocked,
               static_cast<double>(head == j ? request_of(*j->spec).gpus : head->id));
      }
      // The first job blocks the queue, unless it waits for nodes and not for jobs: the end of none
      // can start it, and the queue would stand still for as long as the nodes are away.
      if (!d && !s.unusable.empty() && !start(s.cluster, usable(s), all, *j, *types)) continue;
      if (!d && !s.notes) break;
      blocked = !d;
      if (blocked) continue;
      idle.take(d->where);
      out.push_back(std::move(*d));
    }
    return out;
  }

 private:
  /// GPUs of one of these types, or all where there are none, in one group of datacenters.
  static std::uint32_t max_idle(const snapshot& s, const std::vector<gpu_index>& types,
                                const job_places& places) {
    std::uint32_t max = 0;
    for (const auto& group : places.groups()) {
      const auto here = idle_in(s.cluster, s.idle, group);
      if (types.empty()) max = std::max(max, here.total_idle());
      for (const auto g : types) max = std::max(max, here.idle_of(g));
    }
    return max;
  }

  reason why_waits(const snapshot& s, const job_view& j) const override {
    const auto* note = s.note_of(j.id);
    if (!note) return not_decided_yet();
    if (note->code == wait_code::blocked)
      return because(kind::insufficient, "queued behind job {}, the head of the queue",
                     static_cast<job_id>(note->first));
    const supply all(s.cluster);
    const auto types = types_for(s.cluster, all, j);
    if (!types) return types.error();
    std::uint32_t idle = types->empty() ? s.idle.total_idle() : 0;
    for (const auto g : *types) idle = std::max(idle, s.idle.idle_of(g));
    const auto wish = request_of(*j.spec);
    const auto places =
        places_of_request(s.cluster, *j.spec, wish.gpus, named_types(s.cluster, all, wish));
    if (!places.anywhere()) idle = max_idle(s, *types, places);
    return because(kind::insufficient, "requests {} {}; {} are idle{}", wish.gpus,
                   wish.type.empty() ? "GPUs of one type" : wish.type, idle,
                   places.anywhere() ? "" : " in datacenters that it may have GPUs of together");
  }
};

}  // namespace

std::unique_ptr<policy> make_fcfs() {
  return std::make_unique<fcfs>();
}

}  // namespace troupe::planners
