#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <caf/all.hpp>

#include "actors/control/policy_view.hpp"
#include "actors/protocol/protocol.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "messages/wire/message.hpp"
#include "planners/policy/policy.hpp"

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

/// Published by the orchestrator whenever entries have become durable, or a host has come or gone:
/// the present state, and the jobs that have changed since the last one.
struct state_changed {
  std::shared_ptr<const cluster_state> now;
  std::vector<job_id> jobs;
};

/// The progress of a running job, as reported by its trainer or its program. Not journaled: the
/// next report repeats it.
struct job_progress {
  job_id job = 0;
  lease_id lease = 0;
  std::uint64_t iteration = 0;  // completed, from the job's beginning
  double at_s = 0;  // time of that report on the controller's wall clock, like the journal's times
  double iteration_s = 0;  // 0: unknown
  std::optional<double> loss, tokens_per_s;
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
};

/// Since the controller's start nodes have had enough time to report.
struct startup_over {};

/// Time to call the policy: for its periodic round, or because something changed.
struct decide_now {};

/// Scheduler to status desk: the inputs of starts and moves that it proposes.
struct placements_proposed {
  std::map<job_id, placement_note> notes;
};

/// Scheduler to status desk: after each round, and when it begins to place jobs.
struct scheduling_changed {
  bool starting = true;  // nodes may not have reported yet, so nothing is placed
  scheduling_counts counts;
};

using status_actor =
    caf::typed_actor<caf::reacts_to<state_changed>, caf::reacts_to<job_progress>,
                     caf::reacts_to<gateway_traffic_changed>, caf::reacts_to<plans_reply>,
                     caf::reacts_to<placements_proposed>, caf::reacts_to<scheduling_changed>,
                     caf::reacts_to<inbound<front_report>>, caf::reacts_to<inbound<query_jobs>>,
                     caf::reacts_to<inbound<explain_job>>>;

/// Status desk to scheduler: send the plans that are known, and from now on new ones, placements
/// and counts.
struct watch_scheduling {
  status_actor who;
};

/// Status desk to scheduler: how does the policy see this job?
struct why_waiting {
  job_id job = 0;
};

using scheduler_actor = caf::typed_actor<
    caf::reacts_to<state_changed>, caf::reacts_to<startup_over>, caf::reacts_to<plans_reply>,
    caf::reacts_to<decide_now>, caf::reacts_to<proposal_result>, caf::reacts_to<tick>,
    caf::reacts_to<move_request>, caf::reacts_to<job_progress>, caf::reacts_to<watch_scheduling>,
    caf::replies_to<why_waiting>::with<policy_view>>;

/// To the orchestrator: send the state as it is, and from now on each one that is published.
using state_subscriber = caf::typed_actor<caf::reacts_to<state_changed>>;
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
};

/// Commit the entries recorded so far.
struct commit_now {};

using orchestrator_actor =
    caf::typed_actor<caf::reacts_to<inbound<node_report>>, caf::reacts_to<proposal>,
                     caf::reacts_to<inbound<submit_job>>, caf::reacts_to<inbound<cancel_job>>,
                     caf::reacts_to<inbound<suspend_job>>, caf::reacts_to<inbound<requeue_job>>,
                     caf::reacts_to<inbound<reconfigure>>, caf::reacts_to<inbound<drain_nodes>>,
                     caf::reacts_to<inbound<move_job>>, caf::reacts_to<inbound<gateway_report>>,
                     caf::reacts_to<inbound<read_log>>, caf::reacts_to<inbound<training_report>>,
                     caf::reacts_to<inbound<query_training>>, caf::reacts_to<begin_scheduling>,
                     caf::reacts_to<begin_status>, caf::reacts_to<job_planned>,
                     caf::reacts_to<subscribe>, caf::reacts_to<commit_now>, caf::reacts_to<tick>>;

/// To the estimator: a job needs plans.
struct plans_request {
  job_id job = 0;
  std::shared_ptr<const job_spec> spec;
  double memory_factor = 1;  // the memory that it needs, relative to the prediction
  scheduler_actor reply_to;
};

using estimator_actor = caf::typed_actor<caf::reacts_to<plans_request>, caf::reacts_to<tick>>;

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::state_changed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::job_progress)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::gateway_traffic_changed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::plans_reply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::proposal_result)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::move_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::startup_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::decide_now)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::subscribe)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::begin_scheduling)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::job_planned)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::proposal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::commit_now)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::plans_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::placements_proposed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::scheduling_changed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::watch_scheduling)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::why_waiting)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::policy_view)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::begin_status)
