#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <caf/all.hpp>

#include "actors/protocol/request.hpp"
#include "gpu/device/stage_device.hpp"
#include "messages/base/units.hpp"
#include "messages/wire/client.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/journal.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"
#include "planners/policy/policy.hpp"
#include "runtime/host/transport.hpp"

// The typed interfaces of the actors. Messages from other hosts arrive as inbound<T>; all others
// are sent inside one host.

namespace troupe::actors {

struct cluster_state;

/// A message from another host. It holds one credit of its connection, which the sender gets back
/// when the handler is done, so that no mailbox grows without bound.
template <class T>
struct inbound {
  address from = 0;
  T body;
  payload raw;
  std::shared_ptr<const void> credit;
  runtime::caller sender = {};
};

/// A frame as the transport handed it over.
struct arrived {
  frame what;
};

/// A frame from an actor of the same host.
struct local_frame {
  frame what;
};

/// Periodic tick (heartbeats, liveness, retries).
struct tick {};

/// Since the controller's start nodes have had enough time to report.
struct startup_over {};

/// Time to call the policy: for its periodic round, or because something changed.
struct decide_now {};

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

/// A job's plans, best first; with a reason if there are none.
struct plans_reply {
  job_id job = 0;
  std::shared_ptr<const std::vector<plan>> plans;
  reason why;
  double memory_factor = 1;
  std::string warning{};      // the job's limits exclude its best plan
  std::uint64_t cluster = 0;  // version of the cluster that they are for
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

/// The orchestrator has processed a proposal: what it rejected, and why.
struct proposal_result {
  std::uint64_t number = 0;
  std::vector<std::pair<job_id, reason>> refused;
};

/// A program of this node has started or ended.
struct programs_changed {};

/// The timer of simulated work: it has ended.
struct work_done {
  lease_id lease = 0;
  std::uint64_t start = 0;  // distinguishes it from an earlier work of the same lease
};

/// A device has completed an operation of a stage.
struct device_done {
  expected<gpu::outcome> what;
};

/// A callback to run on the actor's own thread.
struct call_now {
  std::function<void()> what;
};

/// A stage or the trainer of a lease has ended, or cannot continue.
struct training_over {
  lease_id lease = 0;
  stage_name who;  // a stage; of the trainer only the lease counts
  bool trainer = false;
  part_report::state how = part_report::state::succeeded;
  std::string detail;
};

/// To a trainer: finish the iteration, save and exit.
struct stop_training {};

/// To a stage: its part is over. It releases its device, and remains to resend lost tensors.
struct release_device {};

/// To a decoder: it is no longer ordered. It tells the fronts, and exits.
struct stop_serving {};

/// A decoder cannot begin, or cannot continue.
struct serving_over {
  lease_id lease = 0;
  std::string detail;
};

/// An event of a trainer, for the lease's log.
struct training_event {
  lease_id lease = 0;
  std::string sentence;
};

/// Orchestrator to scheduler, for status: what a gateway reported last.
struct gateway_traffic_changed {
  std::uint32_t datacenter = 0;
  gateway_traffic traffic;
};

/// An authorized request to move a running job.
struct move_request {
  address from = 0;
  move_job move;
};

using scheduler_actor =
    caf::typed_actor<caf::reacts_to<state_changed>, caf::reacts_to<startup_over>,
                     caf::reacts_to<plans_reply>, caf::reacts_to<decide_now>,
                     caf::reacts_to<proposal_result>, caf::reacts_to<tick>,
                     caf::reacts_to<inbound<query_jobs>>, caf::reacts_to<inbound<explain_job>>,
                     caf::reacts_to<inbound<front_report>>, caf::reacts_to<move_request>,
                     caf::reacts_to<job_progress>, caf::reacts_to<gateway_traffic_changed>>;

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
                     caf::reacts_to<job_planned>, caf::reacts_to<subscribe>,
                     caf::reacts_to<commit_now>, caf::reacts_to<tick>>;

struct plans_request {
  job_id job = 0;
  std::shared_ptr<const job_spec> spec;
  double memory_factor = 1;  // the memory that it needs, relative to the prediction
  scheduler_actor reply_to;
};

using estimator_actor = caf::typed_actor<caf::reacts_to<plans_request>, caf::reacts_to<tick>>;

/// Receives the frames of a host's transport.
using frame_receiver = caf::typed_actor<caf::reacts_to<arrived>>;

/// Timer of the WAN arbiter. Only the last one counts.
struct crossing_due {
  std::uint64_t number = 0;
};

/// Time to forward the batched heartbeats.
struct heartbeats_due {};

/// Timer of the prefill controller. Only the last one counts.
struct prefills_due {
  std::uint64_t number = 0;
};

using gateway_actor = caf::typed_actor<caf::reacts_to<arrived>, caf::reacts_to<crossing_due>,
                                       caf::reacts_to<heartbeats_due>, caf::reacts_to<prefills_due>,
                                       caf::reacts_to<tick>>;

using node_actor = caf::typed_actor<caf::reacts_to<arrived>, caf::reacts_to<local_frame>,
                                    caf::reacts_to<programs_changed>, caf::reacts_to<work_done>,
                                    caf::reacts_to<training_over>, caf::reacts_to<training_event>,
                                    caf::reacts_to<serving_over>, caf::reacts_to<tick>>;

using stage_actor =
    caf::typed_actor<caf::reacts_to<inbound<stage_run>>, caf::reacts_to<inbound<tensor>>,
                     caf::reacts_to<inbound<tensor_request>>, caf::reacts_to<release_device>,
                     caf::reacts_to<device_done>, caf::reacts_to<call_now>>;

using trainer_actor = caf::typed_actor<caf::reacts_to<inbound<stage_report>>,
                                       caf::reacts_to<inbound<training_report_ack>>,
                                       caf::reacts_to<stop_training>, caf::reacts_to<tick>>;

using decoder_actor = caf::typed_actor<
    caf::reacts_to<inbound<generate>>, caf::reacts_to<inbound<generated_ack>>,
    caf::reacts_to<inbound<cancel_generate>>, caf::reacts_to<inbound<prefill_reply>>,
    caf::reacts_to<inbound<prefill_progress>>, caf::reacts_to<inbound<prefill_block>>,
    caf::reacts_to<stop_serving>, caf::reacts_to<call_now>, caf::reacts_to<tick>>;

using client_actor = caf::typed_actor<caf::replies_to<ask>::with<answer>, caf::reacts_to<arrived>,
                                      caf::reacts_to<tick>>;

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::node_report>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::submit_job>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::cancel_job>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::suspend_job>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::requeue_job>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::reconfigure>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::drain_nodes>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::move_job>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::move_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::stop_training)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::gateway_report>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::read_log>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::query_jobs>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::explain_job>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::front_report>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::arrived)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::crossing_due)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::heartbeats_due)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::prefills_due)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::local_frame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::stage_run>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::stage_report>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::tensor>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::tensor_request>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::release_device)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::training_report>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::query_training>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::training_report_ack>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::device_done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::call_now)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::training_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::training_event)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::generate>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::generated_ack>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::cancel_generate>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::prefill_reply>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::prefill_progress>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::inbound<troupe::prefill_block>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::stop_serving)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::serving_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::tick)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::decide_now)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::state_changed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::subscribe)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::commit_now)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::startup_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::job_progress)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::gateway_traffic_changed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::plans_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::begin_scheduling)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::plans_reply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::job_planned)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::proposal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::proposal_result)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::programs_changed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::work_done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::ask)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::answer)
