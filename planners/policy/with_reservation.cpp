#include "planners/policy/with_reservation.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/exact_gpus.hpp"
#include "planners/plans/places.hpp"
#include "planners/policy/wrapped_policy.hpp"

namespace troupe::planners {

namespace {

bool may_reserve(const job_view& j) {
  return j.facts().gets_reservation && has_plans(j);
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

using nodes_of_types = std::vector<std::vector<node_index>>;

/// The nodes of each GPU type, those with the most idle GPUs first. A node that is absent or
/// drained may be away for days, and no end of a job brings it back: nothing is kept idle for it.
nodes_of_types nodes_by_type(const snapshot& s) {
  nodes_of_types nodes(s.cluster.gpus.size());
  for (node_index n = 0; n < s.cluster.nodes.size(); ++n)
    if (!s.cluster.nodes[n].removed && can_use(s, n)) nodes[s.cluster.nodes[n].gpu].push_back(n);
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

nodes_of_types those_in(const cluster& c, nodes_of_types nodes, const datacenter_group& group) {
  for (auto& of_type : nodes)
    std::erase_if(of_type, [&](node_index n) { return !group[c.nodes[n].datacenter]; });
  return nodes;
}

/// The choice that lacks the fewest GPUs, of all plans and GPU types; the first that lacks none.
void find_better(const snapshot& s, const job_view& j, const nodes_of_types& nodes_of,
                 std::optional<choice>& best) {
  const bool exact = j.facts().exact_gpus;
  for (const auto& how : *j.plans) {
    if (how.bytes_per_gpu <= j.history.bytes_floor) continue;
    const auto count = how.gpus();
    const auto group = how.tensor_in_node ? how.tensor_parallel : 1;
    for (const auto gpu : how.gpu_types) {
      if (max_of_type(s.cluster, *j.spec, gpu) < count) continue;
      for (std::uint32_t nodes = 1; nodes <= (exact ? count : 1); ++nodes) {
        if (count % nodes != 0) continue;
        const auto per_node = exact ? count / nodes : count;
        const bool equal = exact && !j.spec->request.unequal.value_or(false);
        const auto made =
            choose(s, nodes_of[gpu], count, equal ? per_node : count, equal ? per_node : group);
        if (made && (!best || made->missing < best->missing)) best = made;
        if (best && best->missing == 0) return;
      }
    }
  }
}

/// In all groups of datacenters that it may have GPUs of.
std::optional<choice> best_choice(const snapshot& s, const job_view& j,
                                  const nodes_of_types& nodes_of) {
  std::optional<choice> best;
  const job_places places{s.cluster, *j.spec, *j.plans, j.history.bytes_floor};
  if (places.anywhere()) find_better(s, j, nodes_of, best);
  for (const auto& group : places.groups())
    find_better(s, j, those_in(s.cluster, nodes_of, group), best);
  return best;
}

bool needs_several(const job_view& j) {
  return std::ranges::all_of(*j.plans, [](const plan& how) { return how.gpus() > 1; });
}

void remember(std::optional<kept_gpus>& kept, const snapshot& s,
              const std::vector<decision>& decisions, const std::optional<reservation>& r) {
  const bool starts = r && std::ranges::any_of(decisions, [&](const decision& d) {
                        return d.starts() && d.job == r->job;
                      });
  if (!r || starts)
    kept.reset();
  else if (kept && kept->job == r->job)
    kept->where = r->where;
  else
    kept = kept_gpus{r->job, r->where, s.now_s};
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
    remember(kept_, s, decisions, r);
    if (!r || !takes(s, decisions, *r)) return decisions;
    auto idle = s.idle;
    auto waiting = s.waiting;
    auto starts = starts_before(s, decisions, s.waiting.at(r->job));
    for (const auto& d : starts) {
      take(idle, d.where);
      waiting.erase(d.job);
    }
    take(idle, r->where);
    auto others = inner().decide(s.with(idle, waiting, s.running), random);
    std::ranges::move(others, std::back_inserter(starts));
    return starts;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    auto why = inner().why_waiting(s, job);
    const auto at = s.waiting.find(job);
    if (!kept_ || at == s.waiting.end() || !s.waiting.contains(kept_->job)) return why;
    const auto nodes = kept_text(s);
    const auto since = fmt::format("for {:.0f} s", std::max(0.0, s.now_s - kept_->since_s));
    if (job == kept_->job)
      why.text += fmt::format("; {} kept for it, {} now", nodes, since);
    else if (!comes_before(s, job, s.waiting.at(kept_->job)) && could_use_kept(s, at->second))
      why.text = fmt::format(
          "{} kept for job {} ('{}'), which needs more at a time and comes "
          "before it, {} now; {}",
          nodes, kept_->job, s.waiting.at(kept_->job).spec->name, since, why.text);
    return why;
  }

 private:
  /// Jobs that come before the program start wherever GPUs are idle, its own included.
  static std::vector<decision> starts_before(const snapshot& s,
                                             const std::vector<decision>& decisions,
                                             const job_view& program) {
    std::vector<decision> starts;
    auto idle = s.idle;
    for (const auto& d : decisions) {
      const bool here = std::ranges::all_of(
          d.where, [&](const node_share& share) { return idle.idle(share.node) >= share.gpus; });
      if (d.what != decision::kind::start || !d.with.empty() || d.after || !here) continue;
      if (!comes_before(s, d.job, program)) continue;
      take(idle, d.where);
      starts.push_back(d);
    }
    return starts;
  }
  /// "4 idle GPUs of e-0 are"
  std::string kept_text(const snapshot& s) const {
    constexpr std::size_t shown = 4;  // nodes
    std::string names;
    for (std::size_t i = 0; i < std::min(shown, kept_->where.size()); ++i)
      names += (i > 0 ? ", " : "") + s.cluster.nodes[kept_->where[i].node].name;
    if (kept_->where.size() > shown)
      names += fmt::format(" and {} more nodes", kept_->where.size() - shown);
    // Jobs that come before the program may have had some of them since.
    std::uint32_t n = 0;
    for (const auto& share : kept_->where) n += std::min(share.gpus, s.idle.idle(share.node));
    return fmt::format("{} idle GPU{} of {} {}", n, n == 1 ? "" : "s", names,
                       n == 1 ? "is" : "are");
  }
  bool could_use_kept(const snapshot& s, const job_view& j) const {
    if (!has_plans(j)) return false;
    return std::ranges::any_of(kept_->where, [&](const node_share& share) {
      const auto& gpu = s.cluster.gpu_of(share.node);
      return allows(*j.spec, gpu) && std::ranges::any_of(*j.plans, [&](const plan& p) {
               return gpu.memory_bytes() > p.bytes_per_gpu;
             });
    });
  }

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

  mutable std::optional<kept_gpus> kept_;  // nobody's decisions depend on it
};

}  // namespace

std::optional<reservation> reservation_of(const snapshot& s) {
  if (s.all_plain) return {};  // no programs
  const auto waits = [](const job_view& j) { return may_reserve(j) && needs_several(j); };
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

void follow(std::optional<kept_gpus>& kept, const snapshot& s,
            const std::vector<decision>& decisions) {
  remember(kept, s, decisions, reservation_of(s));
}

std::shared_ptr<const policy> with_reservation(std::shared_ptr<const policy> inner) {
  return std::make_shared<const reserving_policy>(std::move(inner));
}

}  // namespace troupe::planners
