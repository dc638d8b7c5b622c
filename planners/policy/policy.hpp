#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/job_union.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/policy/estimate.hpp"

namespace troupe::planners {

// A policy is a pure function from a snapshot of the cluster to decisions. The controller's
// scheduler calls it, checks each decision by fits(), and lets the orchestrator carry it out; the
// simulator calls the same object. Wrappers (wrapped_policy.hpp) add to every policy what the paper
// behind it does not have.

/// One decision. A stopped job returns to the queue with its progress. A moved job is also stopped,
/// and its new GPUs are reserved until it has started there; stopping and starting it in the same
/// list is equivalent. A start whose GPUs are still being released waits, and they are reserved.
struct decision {
  enum class kind { start, stop, give_up, move };
  kind what = kind::start;
  job_id job = 0;
  plan how;          // start, move; bytes_per_gpu 0: memory not predicted
  allocation where;  // start, move
  reason why;        // give_up: why no plan can ever run; start, move: why so, for people
  std::optional<double> grace_s{};  // move: time to save; none: the cluster's
  /// start, move: the expected result; none: estimate_start()'s.
  std::optional<start_estimate> expected{};
  /// start: waiting jobs that are trained as one with it; it has `expected` then.
  std::vector<job_id> with{};
  merge_kind kind_of_union = merge_kind::shared;
  /// start: a running job some of whose GPUs are among `where`; each passes to this one when that
  /// job's part there ends.
  std::optional<job_id> after{};

  /// Whether the job gets GPUs by it.
  bool starts() const { return what == kind::start || what == kind::move; }
};

/// No plan can ever run the job.
inline decision give_up(job_id job, reason why) {
  return {decision::kind::give_up, job, {}, {}, std::move(why)};
}

/// Gives up a job without any plan; false: it has one.
inline bool gives_up(const job_view& j, std::vector<decision>& out) {
  if (has_plans(j)) return false;
  out.push_back(give_up(j.id, why_none(j)));
  return true;
}

inline decision start_job(job_id job, plan how, allocation where) {
  return {decision::kind::start, job, std::move(how), std::move(where), {}};
}
inline decision stop_job(job_id job) {
  return {decision::kind::stop, job, {}, {}, {}};
}

/// See placement.hpp.
expected<std::vector<plan>> plans_for(const cluster& c, const job_spec& job,
                                      planning_budget& budget);

/// Decides what runs where. A policy keeps no state between calls and reads no clock or file: the
/// same snapshot and random numbers give the same decisions.
class policy {
 public:
  virtual ~policy() = default;

  virtual std::string_view name() const = 0;

  /// 0: called on every arrival and departure. Otherwise: called once per this many seconds.
  virtual double round_s() const { return 0; }

  /// For a policy that is called on arrivals and departures: seconds after which it is to be called
  /// again even if nothing happens; 0: never.
  virtual double decide_again_s(const snapshot&) const { return 0; }

  /// The plans that it chooses from for a job, on the whole cluster: job_view::plans. Called on a
  /// thread of its own, also while decide() runs. By default plans_for's (placement.hpp).
  virtual expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                               planning_budget& budget) const {
    return plans_for(c, job, budget);
  }
  /// Whether they depend on how many GPUs the job asks for, and of which type.
  virtual bool plans_by_request() const { return false; }
  /// Whether a job starts with exactly the number of GPUs that it asks for, whatever its plans
  /// have. Pipelines (planners::is_pipeline_job) are excepted.
  virtual bool starts_requested_number() const { return false; }

  /// Whether it places a job itself; `pipelines`: the job runs as pipelines that are planned here
  /// (job_view::training). The controller places the other jobs by with_trainings.
  virtual bool places(const job_spec& job, bool pipelines) const {
    (void)job;
    return !pipelines;
  }

  /// Decisions, in order. Each start must satisfy fits() after those before it.
  virtual std::vector<decision> decide(const snapshot& s, random_source& random) const = 0;

  /// Why a job is waiting, as a sentence. For people only.
  virtual reason why_waiting(const snapshot& s, job_id job) const = 0;
};

/// A policy that explains the jobs of the queue, and no others.
class queue_policy : public policy {
 public:
  reason why_waiting(const snapshot& s, job_id job) const final {
    const auto at = s.waiting.find(job);
    return at != s.waiting.end() ? why_waits(s, at->second) : not_waiting(job);
  }

 private:
  virtual reason why_waits(const snapshot& s, const job_view& j) const = 0;
};

/// A policy by its name (frenzy, fcfs, ...), or null.
std::unique_ptr<policy> make_policy(std::string_view name);

/// The names that make_policy knows.
std::vector<std::string_view> policy_names();

}  // namespace troupe::planners
