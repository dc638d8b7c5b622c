#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "messages/base/reason.hpp"
#include "planners/cluster/decision.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/policy/placement.hpp"

namespace troupe::planners {

// A policy is a pure function from a snapshot of the cluster to decisions. The controller's
// scheduler calls it, checks each decision by fits(), and lets the orchestrator carry it out; the
// simulator calls the same object. Wrappers (wrapped_policy.hpp) add to every policy what the paper
// behind it does not have.

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
  /// have. Pipelines (work_facts::pipelines) are excepted.
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
