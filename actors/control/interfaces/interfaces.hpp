#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <caf/all.hpp>

#include "actors/protocol/protocol.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "messages/wire/message.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/policy/policy.hpp"
#include "planners/policy/with_reservation.hpp"

// The interfaces of the controller's actors, and the messages that they send each other. None of
// these leaves the controller.
//
//    clients, nodes, gateways                       clients, fronts
//          |  ^                                          |  ^
//          v  | replies, orders                          v  | answers
//     orchestrator ---- state_changed, progress ----> status desk
//      |   ^    |                                      ^      |
//      |   |    +------ state_changed, progress --+    |      | why_waiting
//      |   |                                      v    |      v
//      |   +---- proposal, job_planned --------- scheduler (policy)
//      |                                          |    ^
//      v append, then act                         v    | plans_reply
//   journal                                      estimator (policy's plans)
//
// The orchestrator alone changes anything. The others work on published states, which may be out of
// date: a decision can be stale, and is then refused, but never carried out wrongly.

namespace troupe::actors {

struct cluster_state;

/// The inputs of a placement decision: the idle GPUs at that time, by node, of present nodes only.
struct placement_note {
  std::vector<std::uint32_t> idle;
  std::vector<bool> present;
  std::string why{};            // the policy's own sentence, if it has one
  std::vector<bool> drained{};  // empty: none
  bool moved = false;           // `idle` has the GPUs that the job had before, too
};

/// How the policy sees one job.
struct policy_view {
  std::string why_waiting;                           // empty: the job does not wait for the policy
  std::shared_ptr<const planners::idle_index> idle;  // without reserved GPUs; null: unknown
};

/// Published by the orchestrator whenever entries have become durable, or a host has come or gone:
/// the present state, and the jobs that have changed since the last one.
struct state_changed {
  std::shared_ptr<const cluster_state> now;
  std::vector<job_id> jobs;
};

/// The progress of a running job, as reported by its trainer or its program. Not journaled: the
/// next report repeats it.
struct progress_report {
  job_id job = 0;
  lease_id lease = 0;
  std::uint64_t iteration = 0;  // completed, from the job's beginning
  double at_s = 0;  // time of that report on the controller's wall clock, like the journal's times
  double iteration_s = 0;  // 0: unknown
  std::optional<double> loss, tokens_per_s;
  // For elastic programs: iterations that a later attempt can go on from, and the time from the
  // grant to the first iteration.
  std::optional<std::uint64_t> saved{};
  std::optional<double> start_s{};
  std::optional<std::uint64_t> last{};  // the job's last iteration, as its program says
  std::optional<held_out_losses> held_out{};
};

/// Orchestrator to status desk: the latest report of a gateway.
struct gateway_traffic_changed {
  std::uint32_t datacenter = 0;
  gateway_traffic traffic;
};

/// A job's plans, best first; with a reason if there are none.
struct plans_reply {
  job_id job = 0;
  std::shared_ptr<const std::vector<plan>> plans;
  reason why;
  double memory_factor = 1;
  std::string warning{};      // the job's limits exclude its best plan
  std::uint64_t cluster = 0;  // version of the cluster that they are for
};

/// The orchestrator has processed a proposal: what it rejected, and why.
struct proposal_result {
  std::uint64_t number = 0;
  std::vector<std::pair<job_id, reason>> refused;
};

/// An authorized request to move a running job.
struct move_request {
  address from = 0;
  move_job move;
  std::string by{};  // the user's name
};

/// Since the controller's start nodes have had enough time to report.
struct startup_over {};

/// Time to call the policy: for its periodic round, or because something changed.
struct decide_now {};

/// Time to look at the jobs that wait before their next attempt.
struct backoffs_due {};

/// Scheduler to status desk: the inputs of starts and moves that it proposes.
struct placements_proposed {
  std::map<job_id, placement_note> notes;
};

/// Scheduler to status desk: after each round, and when it begins to place jobs.
struct scheduling_changed {
  bool starting = true;  // nodes may not have reported yet, so nothing is placed
  scheduling_counts counts;
  std::optional<planners::kept_gpus> kept{};  // for a job that waits
};

using status_actor = actor_of<state_changed, progress_report, gateway_traffic_changed, plans_reply,
                              placements_proposed, scheduling_changed, inbound<front_report>,
                              inbound<query_jobs>, inbound<explain_job>>;

/// Status desk to scheduler: send the plans that are known, and from now on new ones, placements
/// and counts.
struct watch_scheduling {
  status_actor who;
};

/// Status desk to scheduler: how does the policy see this job?
struct why_waiting {
  job_id job = 0;
};

using scheduler_actor =
    actor_of<state_changed, startup_over, plans_reply, decide_now, proposal_result, tick,
             backoffs_due, move_request, progress_report,
             watch_scheduling>::extend<caf::replies_to<why_waiting>::with<policy_view>>;

/// To the orchestrator: send the state as it is, and from now on each one that is published.
using state_subscriber = actor_of<state_changed>;
struct subscribe {
  state_subscriber who;
};

/// The same for the scheduler, which also gets the results of its proposals, the progress of jobs,
/// and users' requests to move jobs.
struct begin_scheduling {
  scheduler_actor scheduler;
};

/// The same for the status desk, which also gets the progress of jobs and the traffic of gateways.
struct begin_status {
  status_actor status;
};

/// Scheduler to orchestrator: a job's plans are known; `never`: why there is none on this cluster
/// as it is configured.
struct job_planned {
  job_id job = 0;
  std::optional<reason> never;
};

/// A policy's decisions, to be committed, and their expected results.
struct proposal {
  std::uint64_t number = 0;
  std::vector<planners::decision> decisions;
  std::set<job_id> moved_by_users{};  // by `troupe move`, and not by the policy
};

/// Commit the entries recorded so far.
struct commit_now {};

using orchestrator_actor =
    actor_of<inbound<node_report>, proposal, inbound<submit_job>, inbound<cancel_job>,
             inbound<suspend_job>, inbound<requeue_job>, inbound<reconfigure>, inbound<drain_nodes>,
             inbound<move_job>, inbound<gateway_report>, inbound<read_log>,
             inbound<training_report>, inbound<query_training>, begin_scheduling, begin_status,
             job_planned, subscribe, commit_now, tick>;

/// The other actors of the controller, as the orchestrator's classes see them. They begin after the
/// orchestrator: until then, and in tests of the orchestrator alone, their handles are null.
struct controller_links {
  orchestrator_actor::pointer self = nullptr;
  scheduler_actor scheduler;
  status_actor status;

  void send_progress(const progress_report& p) const {
    if (scheduler) self->send(scheduler, p);
    if (status) self->send(status, p);
  }
};

/// To the estimator: a job needs plans.
struct plans_request {
  job_id job = 0;
  std::shared_ptr<const job_spec> spec;
  double memory_factor = 1;  // the memory that it needs, relative to the prediction
  scheduler_actor reply_to;
};

using estimator_actor = actor_of<plans_request, tick>;

}  // namespace troupe::actors
