#include "planners/policy/with_trainings.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/policy/placement.hpp"
#include "planners/policy/split_views.hpp"
#include "planners/policy/wrapped_policy.hpp"

namespace troupe::planners {

namespace {

/// Published policies place jobs on counts of GPUs; none of them cuts a model into stages or
/// chooses datacenters. So trainings are placed before them by Algorithm 1, and the policy decides
/// about the rest of the cluster. The policies troupe, espresso and crius place them themselves
/// (places()).
class trainings_policy final : public wrapped_policy {
 public:
  explicit trainings_policy(std::shared_ptr<const policy> inner)
      : wrapped_policy{std::move(inner)} {}

  bool places(const job_spec&, bool) const override { return true; }

  expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                       planning_budget& budget) const override {
    if (facts_of(job).pipelines && !inner().places(job, true)) return plans_for(c, job, budget);
    return inner().plans_of(c, job, budget);
  }

  double decide_again_s(const snapshot& s) const override {
    const auto waiting = split(s.waiting), running = split(s.running);
    return inner().decide_again_s(s.with(s.idle, waiting.seen(), running.seen()));
  }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    const auto waiting = split(s.waiting), running = split(s.running);
    std::vector<decision> all;
    std::optional<idle_index> room;
    const auto rest = start_trainings(s.with(s.idle, waiting.own(), s.running), all, room);
    auto others = inner().decide(s.with(rest.idle, waiting.seen(), running.seen()), random);
    std::ranges::move(others, std::back_inserter(all));
    return all;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto at = s.waiting.find(job);
    if (at == s.waiting.end()) return not_waiting(job);
    if (is_own(at->second)) return why_training_waits(s, at->second);
    const auto waiting = split(s.waiting), running = split(s.running);
    return inner().why_waiting(s.with(s.idle, waiting.seen(), running.seen()), job);
  }

 private:
  bool is_own(const job_view& j) const { return !inner().places(*j.spec, j.training); }
  split_views split(const job_views& all) const {
    return {all, [this](const job_view& j) { return is_own(j); }};
  }
};

bool needs_it(const job_view& j) {
  return needs_torch(*j.spec);
}

/// The nodes that such a training cannot use, by index.
std::vector<unusable_node> unusable_without_torch(const snapshot& s) {
  std::vector<unusable_node> all{s.unusable.begin(), s.unusable.end()};
  for (const auto& w : s.without_torch) {
    const auto at = std::ranges::lower_bound(all, w.node, {}, &unusable_node::node);
    if (at == all.end() || at->node != w.node) all.insert(at, {w.node, "without PyTorch"});
  }
  return all;
}

class torch_nodes_policy final : public wrapped_policy {
 public:
  explicit torch_nodes_policy(std::shared_ptr<const policy> inner)
      : wrapped_policy{std::move(inner)} {}

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    const split_views waiting{s.waiting, needs_it}, running{s.running, needs_it};
    if (s.without_torch.empty() || !waiting.any_own()) return inner().decide(s, random);
    const auto unusable = unusable_without_torch(s);
    const auto with_it = idle_with_torch(s.without_torch, s.idle);
    auto own = s.with(with_it, waiting.own(), running.own());
    own.unusable = unusable;
    auto decisions = inner().decide(own, random);
    auto left = s.idle;
    for (const auto& d : decisions)
      if (d.starts() && !d.after) take(left, d.where);
    auto others = inner().decide(s.with(left, waiting.seen(), running.seen()), random);
    std::ranges::move(others, std::back_inserter(decisions));
    return decisions;
  }

  reason why_waiting(const snapshot& s, job_id job) const override {
    const auto at = s.waiting.find(job);
    if (at == s.waiting.end() || s.without_torch.empty() || !needs_it(at->second))
      return inner().why_waiting(s, job);
    const auto unusable = unusable_without_torch(s);
    const auto lacking = nodes_without_torch(s);
    if (lacking.size() == nodes_in(s.cluster)) return why_none(s, *lacking.front());
    const auto idle = idle_with_torch(s.without_torch, s.idle);
    auto own = s.with(idle, s.waiting, s.running);
    own.unusable = unusable;
    auto why = inner().why_waiting(own, job);
    if (!lacking.empty() && why.text.find("without PyTorch") == why.text.npos)
      why.text += fmt::format("; nodes without PyTorch: {}", lacking.size());
    return why;
  }

 private:
  /// Those that have not left the cluster. An absent node is known by its last report.
  static std::vector<const node_without_torch*> nodes_without_torch(const snapshot& s) {
    std::vector<const node_without_torch*> all;
    for (const auto& w : s.without_torch)
      if (!s.cluster.nodes[w.node].removed) all.push_back(&w);
    return all;
  }
  static std::size_t nodes_in(const cluster& c) {
    return static_cast<std::size_t>(std::ranges::count(c.nodes, false, &node::removed));
  }
  static reason why_none(const snapshot& s, const node_without_torch& first) {
    return because(reason::kind::insufficient,
                   "no node has PyTorch: {} on {} has no module torch; install it and restart the "
                   "nodes, or name an interpreter that has it (`python:` of the job, "
                   "$TROUPE_PYTHON of the nodes)",
                   first.interpreter, s.cluster.nodes[first.node].name);
  }
};

}  // namespace

std::unique_ptr<policy> with_trainings(std::shared_ptr<const policy> inner) {
  return std::make_unique<trainings_policy>(std::move(inner));
}

bool needs_torch(const job_spec& job) {
  return job.train && job.train->program && job.train->program->python.empty() &&
         !is_simulated(job.train->device);
}

idle_index idle_with_torch(std::span<const node_without_torch> without, idle_index idle) {
  for (const auto& w : without) idle.set_idle(w.node, 0);
  return idle;
}

std::unique_ptr<policy> with_torch_nodes(std::shared_ptr<const policy> inner) {
  return std::make_unique<torch_nodes_policy>(std::move(inner));
}

}  // namespace troupe::planners
