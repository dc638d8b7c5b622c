#include "planners/policy/with_reservation.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "planners/cluster/queue_order.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/policy/replayed_jobs.hpp"
#include "planners/policy/wrapped_policy.hpp"

namespace troupe::planners {

namespace {

bool is_program(const job_view& j) {
  return !j.spec->command.empty() && !is_replayed(*j.spec) && has_plans(j);
}

/// GPUs of nodes of one type.
struct choice {
  allocation idle;            // those that are idle now
  std::uint32_t missing = 0;  // those that are not
};

// Without a reservation a stream of small programs could keep a large one waiting for ever: as soon
// as two GPUs are free of the eight that it needs, somebody takes them. Backfilling, the usual
// cure, needs to know when running jobs end. Here the nodes that lack the fewest GPUs are kept for
// the first such program, and everything else of the cluster is used as before.

/// The nodes of each GPU type, those with the most idle GPUs first.
std::vector<std::vector<node_index>> nodes_by_type(const snapshot& s) {
  std::vector<std::vector<node_index>> nodes(s.cluster.gpus.size());
  for (node_index n = 0; n < s.cluster.nodes.size(); ++n)
    if (!s.cluster.nodes[n].removed) nodes[s.cluster.nodes[n].gpu].push_back(n);
  for (auto& of_type : nodes)
    std::ranges::stable_sort(of_type, std::greater{}, [&](node_index n) { return s.idle.idle(n); });
  return nodes;
}

/// `count` GPUs of these nodes, at most `per_node` of a node and in groups of `group`, from the
/// first node on; nothing: they have fewer.
std::optional<choice> choose(const snapshot& s, const std::vector<node_index>& nodes,
                             std::uint32_t count, std::uint32_t per_node, std::uint32_t group) {
  choice made;
  for (const auto n : nodes) {
    if (count == 0) break;
    const auto capacity = std::min(s.cluster.nodes[n].gpus, per_node) / group * group;
    const auto take = std::min(capacity, count);
    const auto idle = std::min(s.idle.idle(n), take);
    if (idle > 0) made.idle.push_back({n, idle});
    made.missing += take - idle;
    count -= take;
  }
  if (count > 0) return {};
  return made;
}

/// The choice that lacks the fewest GPUs, of all plans and GPU types; the first that lacks none.
std::optional<choice> best_choice(const snapshot& s, const job_view& j,
                                  const std::vector<std::vector<node_index>>& nodes_of) {
  std::optional<choice> best;
  const bool exact = has_exact_gpus(*j.spec);
  for (const auto& how : *j.plans) {
    if (how.bytes_per_gpu <= j.bytes_floor) continue;
    const auto count = how.gpus();
    const auto group = how.tensor_in_node ? how.tensor_parallel : 1;
    for (const auto gpu : how.gpu_types) {
      if (max_of_type(s.cluster, *j.spec, gpu) < count) continue;
      for (std::uint32_t nodes = 1; nodes <= (exact ? count : 1); ++nodes) {
        if (count % nodes != 0) continue;
        const auto per_node = exact ? count / nodes : count;
        const auto made = choose(s, nodes_of[gpu], count, per_node, exact ? per_node : group);
        if (made && (!best || made->missing < best->missing)) best = made;
        if (best && best->missing == 0) return best;
      }
    }
  }
  return best;
}

bool needs_several(const job_view& j) {
  return std::ranges::all_of(*j.plans, [](const plan& how) { return how.gpus() > 1; });
}

class reserving_policy final : public wrapped_policy {
 public:
  explicit reserving_policy(std::shared_ptr<const policy> inner)
      : wrapped_policy{std::move(inner)} {}

  /// The policy decides a second time only if its first decisions would take reserved GPUs: it may
  /// start the program itself, in a way that reservation_of does not foresee.
  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    auto decisions = inner().decide(s, random);
    const auto r = reservation_of(s);
    if (!r || !takes(s, decisions, *r)) return decisions;
    auto idle = s.idle;
    take(idle, r->where);
    return inner().decide(s.with(idle, s.waiting, s.running), random);
  }

 private:
  /// Whether jobs that come after the program would start on its GPUs, and it would not start.
  static bool takes(const snapshot& s, const std::vector<decision>& decisions,
                    const reservation& r) {
    const auto& program = s.waiting.at(r.job);
    auto idle = s.idle;
    for (const auto& d : decisions) {
      if (!d.starts()) continue;
      if (d.job == r.job) return false;
      if (!comes_before(s, d.job, program)) take(idle, d.where);
    }
    return std::ranges::any_of(
        r.where, [&](const node_share& kept) { return idle.idle(kept.node) < kept.gpus; });
  }
  static bool comes_before(const snapshot& s, job_id id, const job_view& program) {
    const auto at = s.waiting.find(id);
    if (at == s.waiting.end()) return false;
    const auto priority = at->second.spec->priority, own = program.spec->priority;
    return priority > own || (priority == own && id < program.id);
  }
};

}  // namespace

std::optional<reservation> reservation_of(const snapshot& s) {
  const auto waits = [](const job_view& j) { return is_program(j) && needs_several(j); };
  const auto programs = in_order(s.waiting, waits);
  if (programs.empty()) return {};
  const auto nodes_of = nodes_by_type(s);
  for (const auto* j : programs) {
    const auto c = best_choice(s, *j, nodes_of);
    if (!c) continue;                // on GPUs of several types, or never
    if (c->missing == 0) continue;   // it can start now
    if (c->idle.empty()) return {};  // as soon as a GPU of its nodes is idle
    return reservation{j->id, c->idle};
  }
  return {};
}

std::shared_ptr<const policy> with_reservation(std::shared_ptr<const policy> inner) {
  return std::make_shared<const reserving_policy>(std::move(inner));
}

}  // namespace troupe::planners
