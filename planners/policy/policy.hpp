#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/base/random.hpp"
#include "messages/base/reason.hpp"
#include "planners/cluster/decision.hpp"
#include "planners/cluster/parameter.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/cluster/unions.hpp"
#include "planners/policy/placement.hpp"

namespace troupe::planners {

class lookup_table;

// A policy is a pure function from a snapshot of the cluster to decisions. The controller's
// scheduler calls it, checks each decision by fits(), and lets the orchestrator carry it out; the
// simulator calls the same object. Wrappers (wrapped_policy.hpp) add to every policy what the paper
// behind it does not have.

/// Facts about a policy that others ask, so that none of them knows a policy by its name.
struct policy_traits {
  /// 0: it is called on every arrival and departure. Otherwise: once per this many seconds.
  double round_s = 0;
  /// A real controller decides about a new job this long after the first of several, so that a
  /// policy that merges jobs sees together what was submitted together. 0: at once.
  double gather_s = 0;
  /// The rules by which it starts waiting jobs as one; none: it does not.
  std::optional<merge_rules> merges{};
  /// Whether plans_of() depends on how many GPUs a job asks for, and of which type.
  bool plans_by_request = false;
  /// Whether a job starts with exactly the number of GPUs that it asks for, whatever its plans
  /// have. Pipelines (work_facts::pipelines) are excepted.
  bool starts_requested_number = false;
  /// Whether it places jobs that are no pipelines by best fit (plans/has.hpp).
  bool best_fit = false;
  /// Whether it chooses the parallelism of simulated work itself, pipelines included.
  bool any_parallelism = false;
  /// Whether it plans by policy_inputs::measured.
  bool uses_measured_rows = false;
};

/// Given to a policy by a study, beside its parameters.
struct policy_inputs {
  std::shared_ptr<const lookup_table> measured{};  // fine-tuning iterations; null: none
  /// Called with each program that it solves: to be solved by the call, which returns the gap of
  /// the answer. Null: it is solved as usual.
  std::function<void(const std::function<double()>& solve)> around_solve{};
};

/// `solve`, whose answer has a gap, within policy_inputs::around_solve.
template <class Around, class Solve>
auto around(Around call, Solve solve) {
  return [call = std::move(call), solve = std::move(solve)](const auto&... problem) {
    decltype(solve(problem...)) answer;
    call([&] {
      answer = solve(problem...);
      return answer.gap();
    });
    return answer;
  };
}

/// Decides what runs where. A policy keeps no state between calls and reads no clock or file: the
/// same snapshot and random numbers give the same decisions.
class policy {
 public:
  virtual ~policy() = default;

  virtual std::string_view name() const = 0;

  /// Constant.
  virtual policy_traits traits() const { return {}; }

  /// The numbers that its user may set, before anything else is asked of it.
  virtual std::vector<parameter> parameters() { return {}; }
  /// The same time, once.
  virtual void use(const policy_inputs&) {}

  /// For a policy that is called on arrivals and departures: seconds after which it is to be called
  /// again even if nothing happens; 0: never.
  virtual double decide_again_s(const snapshot&) const { return 0; }

  /// The plans that it chooses from for a job, on the whole cluster: job_view::plans. By default
  /// plans_for's (placement.hpp).
  ///
  /// Threads: on a real controller it is called on a thread of its own, also while one of the other
  /// functions runs on another thread. No function is called on two threads at a time. A policy
  /// that remembers what it computed has one memory for plans_of() and another for the rest, as
  /// titan has, or a lock.
  virtual expected<std::vector<plan>> plans_of(const cluster& c, const job_spec& job,
                                               planning_budget& budget) const {
    return plans_for(c, job, budget);
  }

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
