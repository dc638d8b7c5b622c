#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/job_progress.hpp"
#include "messages/domain/memory.hpp"
#include "messages/domain/plan.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/view_changes.hpp"
#include "planners/cluster/wait_note.hpp"

namespace troupe::planners {

// The input of every policy (policy/policy.hpp): all that is known of a cluster and its jobs at one
// time, as plain values. Times are in seconds of the controller's clock, wall or virtual; memory is
// in bytes. A snapshot refers to its lists: it is valid during one call.

/// A running job's last report.
struct reported_progress {
  std::uint64_t iteration = 0;
  double at_s = 0;
  double iteration_s = 0;  // measured; greater than 0
};

/// A job as a policy sees it: plain values. `how` and `where` of a waiting job are empty.
struct job_view {
  job_id id = 0;
  /// Views with the same number are equal: who makes or changes one gives it a new number, so that
  /// a policy need not look at what it knows. 0: none, and nothing follows.
  std::uint64_t number = 0;
  bool training = false;  // runs as pipelines of planned stages (policy/placement.hpp)
  std::shared_ptr<const job_spec> spec;
  double submitted_s = 0;
  /// The policy's plans for it (policy::plans_of), best first. Identical jobs share one list
  /// (compare the pointers).
  std::shared_ptr<const std::vector<plan>> plans;
  reason why;  // if there are none
  job_progress progress;
  memory_history history;  // `plans` already have its factor
  // While it is running:
  double started_s = 0;
  plan how;
  allocation where;
  double iteration_s = 0;                       // expected, of the present attempt
  std::optional<double> start_s{};              // before its first iteration; none: restart_s
  std::optional<reported_progress> reported{};  // in the present attempt
  // The last attempt's shape; 0: there was none.
  std::uint32_t rows = 0;  // samples per micro-batch
  std::uint32_t data_parallel = 0;
  std::vector<pipeline_group> groups{};  // empty: its pipelines were alike
  std::string owner{};                   // the name of the key that submitted it
  /// An elastic program's attempts so far and its measured costs; null: there was none.
  std::shared_ptr<const elastic_record> elastic{};
  bool followed = false;  // while it is running: another job gets GPUs from it
  // Used by facts() alone.
  mutable const job_spec* known = nullptr;
  mutable work_facts known_facts{};

  /// facts_of(*spec), once for each `spec`: decisions ask for every job, several times.
  const work_facts& facts() const {
    if (known != spec.get()) known = spec.get(), known_facts = facts_of(*spec);
    return known_facts;
  }
};

using job_views = std::map<job_id, job_view>;
inline const job_views no_jobs;

/// A node whose GPUs cannot be used now.
struct unusable_node {
  node_index node = 0;
  const char* state = "";  // "absent" or "drained"
};

/// A node whose interpreter has no PyTorch, by its own report. Workers of trainings cannot start
/// there, unless their job names another interpreter.
struct node_without_torch {
  node_index node = 0;
  std::string interpreter;

  bool operator==(const node_without_torch&) const = default;
};

/// A job that was submitted lately, whether or not it has ended since. Policy troupe estimates the
/// load from these.
struct recent_arrival {
  double at_s = 0;
  std::shared_ptr<const job_spec> spec;
  std::shared_ptr<const std::vector<plan>> plans;  // as in job_view
};

/// Input of a policy: the state at `now_s`. Built by the controller's scheduler from the ledger,
/// and by tests by hand.
struct snapshot {
  double now_s = 0;
  const troupe::cluster& cluster;
  const idle_index& idle;
  const job_views& waiting;  // programs and trainings, in order of arrival
  const job_views& running;  // jobs that are being stopped are in neither
  /// Jobs about to start, whose GPUs are still being released by others: their GPUs (`how`,
  /// `where`) do not count as idle, and they are in neither list above. Another decision about one
  /// of them cancels the pending start.
  const job_views& moving = no_jobs;
  std::span<const unusable_node> unusable{};  // by index; none: all can be used, or not known
  /// The last time at which a job arrived, started or ended, or a node changed; none: now. A policy
  /// that looks only at what is left of each job then does not change its decisions because time
  /// passes.
  std::optional<double> changed_s{};
  std::span<const recent_arrival> arrivals{};  // the latest, oldest first
  /// Unions that run, each a job without plans: their members are in none of the lists.
  const job_views& unions = no_jobs;
  /// The cluster once more, if its owner shares it: who keeps this knows without a comparison that
  /// the next snapshot is of the same one.
  std::shared_ptr<const troupe::cluster> shared_cluster{};
  /// No job of the lists, unions aside, is a program or a decoder, or left to others by the policy
  /// (policy::places); false: one may be, and who wants to know looks through the lists.
  bool all_plain = false;
  /// While a policy decides: gets its notes of waiting jobs; null: nobody asks why they wait. When
  /// it is asked why: those of its last decision.
  wait_notes* notes = nullptr;
  std::span<const node_without_torch> without_torch{};  // by index
  /// The changes of the views in `waiting` and `running`, all of which have numbers; null: nobody
  /// notes them, and who keeps what it knows of the jobs looks through the lists.
  const view_changes* changes = nullptr;

  /// The same at the time of its last change: work left then does not shrink between two changes,
  /// and decisions that depend on it do not either.
  snapshot at_change() const {
    auto s = *this;
    s.now_s = changed_s.value_or(now_s);
    return s;
  }
  /// The same with other idle GPUs and jobs, of whose changes nothing is known.
  snapshot with(const idle_index& other_idle, const job_views& other_waiting,
                const job_views& other_running) const {
    snapshot s{now_s,    cluster,   other_idle, other_waiting, other_running, moving,
               unusable, changed_s, arrivals,   unions,        shared_cluster};
    s.notes = notes;
    s.without_torch = without_torch;
    return s;
  }

  void note(job_id job, wait_code code, double first = 0, double second = 0) const {
    if (notes) notes->add({job, code, first, second});
  }
  void note(job_id job, reason why) const {
    if (notes)
      notes->add({job, wait_code::searched, 0, 0, std::make_shared<const reason>(std::move(why))});
  }
  const wait_note* note_of(job_id job) const { return notes ? notes->find(job) : nullptr; }
  const wait_note* note_of(job_id job, wait_code code) const {
    return notes ? notes->find(job, code) : nullptr;
  }
};

}  // namespace troupe::planners
