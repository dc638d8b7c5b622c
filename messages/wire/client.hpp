#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/reason.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/job_progress.hpp"
#include "messages/domain/memory.hpp"
#include "messages/domain/plan.hpp"
#include "messages/wire/generation.hpp"
#include "messages/wire/work.hpp"

// Between a client (the command line, or any program that follows docs/wire.md) and the controller.
// A client repeats a request until it is answered; `request` is a random number of its own that
// makes repetition harmless.

namespace troupe {

/// Answered by `submit_reply`, once the job is durable in the journal.
struct submit_job {
  std::uint64_t request = 0;  // the client's number for it
  job_spec spec;

  TROUPE_FIELDS(submit_job, request, spec);
};

/// The answer to `submit_job`.
struct submit_reply {
  std::uint64_t request = 0;  // the request's
  job_id job = 0;             // the job's number; 0: rejected
  reason why;                 // if rejected

  TROUPE_FIELDS(submit_reply, request, job, why);
};

/// Answered by `cancel_reply`.
struct cancel_job {
  std::uint64_t request = 0;
  job_id job = 0;  // the job's number

  TROUPE_FIELDS(cancel_job, request, job);
};

/// The answer to `cancel_job`.
struct cancel_reply {
  std::uint64_t request = 0;  // the request's
  bool done = false;          // the job is, or will soon be, cancelled
  reason why;                 // if not

  TROUPE_FIELDS(cancel_reply, request, done, why);
};

/// A suspended job waits and gets no GPUs until it is resumed. A training finishes its iteration,
/// saves and exits; a program gets SIGTERM; saved work is kept. Answered by `suspend_reply`.
struct suspend_job {
  std::uint64_t request = 0;  // the client's number for it
  job_id job = 0;
  bool suspended = true;  // false: resume it

  TROUPE_FIELDS(suspend_job, request, job, suspended);
};

/// The answer to `suspend_job`.
struct suspend_reply {
  std::uint64_t request = 0;  // the request's
  bool done = false;          // it is, or will soon be
  reason why;                 // if not

  TROUPE_FIELDS(suspend_reply, request, done, why);
};

/// A running job is stopped as if it were suspended, and queued again at once. Answered by
/// `requeue_reply`.
struct requeue_job {
  std::uint64_t request = 0;  // the client's number for it
  job_id job = 0;

  TROUPE_FIELDS(requeue_job, request, job);
};

/// The answer to `requeue_job`.
struct requeue_reply {
  std::uint64_t request = 0;  // the request's
  bool done = false;          // it is being stopped
  reason why;                 // if not

  TROUPE_FIELDS(requeue_reply, request, done, why);
};

/// Moves a running training or elastic program to another layout or place: it finishes its
/// iteration, saves, and resumes there from its checkpoint. Fields that are 0 or empty stay as they
/// are. Answered by `move_reply`.
struct move_job {
  std::uint64_t request = 0;  // the client's number for it
  job_id job = 0;
  std::uint32_t stages = 0, data_parallel = 0, tensor_parallel = 0;
  std::string gpu_type;
  std::vector<std::string> nodes;       // only these nodes
  std::optional<double> grace_s;        // time to save; none: settings.preempt_grace_s
  std::optional<std::uint32_t> gpus{};  // of an elastic program; none: as many as now
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(move_job, request, job, stages, data_parallel, tensor_parallel, gpu_type, nodes,
                grace_s, gpus);
};

/// The answer to `move_job`.
struct move_reply {
  std::uint64_t request = 0;  // the request's
  bool done = false;          // it is being stopped, and its new GPUs are reserved
  reason why;                 // if not
  plan how;
  allocation where;
  /// The price of what it will read of its checkpoint from other datacenters; none: 0.
  std::optional<double> traffic{};
  static constexpr std::size_t required = 5;

  TROUPE_FIELDS(move_reply, request, done, why, how, where, traffic);
};

/// The cluster file as it is from now on; operators only. Nodes are identified by their names.
/// Answered by `reconfigure_reply`.
struct reconfigure {
  std::uint64_t request = 0;  // the client's number for it
  troupe::cluster cluster;    // as loaded from the file

  TROUPE_FIELDS(reconfigure, request, cluster);
};

/// The changes of a cluster: hosts by name ("rome/gateway"), and values as sentences.
struct cluster_difference {
  std::vector<std::string> added;    // hosts, by name
  std::vector<std::string> removed;  // hosts, by name
  std::vector<std::string> changed;  // sentences

  TROUPE_FIELDS(cluster_difference, added, removed, changed);
};

/// The answer to `reconfigure`.
struct reconfigure_reply {
  std::uint64_t request = 0;  // the request's
  bool done = false;          // the cluster is as in the file
  reason why;                 // if not
  cluster_difference what;
  std::vector<job_id> stopping;  // jobs on removed nodes, which are stopped and queued again

  TROUPE_FIELDS(reconfigure_reply, request, done, why, what, stopping);
};

/// No new work starts on drained nodes; operators only. Answered by `drain_reply`.
struct drain_nodes {
  std::uint64_t request = 0;       // the client's number for it
  std::vector<std::string> nodes;  // their names
  bool drained = true;             // false: they get work again
  bool stop = false;               // running work gets its grace and is queued again

  TROUPE_FIELDS(drain_nodes, request, nodes, drained, stop);
};

/// The answer to `drain_nodes`.
struct drain_reply {
  std::uint64_t request = 0;  // the request's
  bool done = false;          // all of them are
  reason why;                 // if not
  std::vector<job_id> jobs;   // that still run on these nodes

  TROUPE_FIELDS(drain_reply, request, done, why, jobs);
};

/// The speed of an elastic program on some GPUs, beside its estimate.
struct rate_status {
  program_rate measured;  // or as the job's file gives it, until it is measured
  double estimated_samples_per_s = 0;

  TROUPE_FIELDS(rate_status, measured, estimated_samples_per_s);
};

/// An elastic program's attempts so far. Times are medians of what was measured, or the job file's
/// until then.
struct elastic_status {
  std::uint64_t saved = 0;       // iterations that a later attempt can go on from
  std::uint32_t world_size = 0;  // its present GPUs; 0: it does not run
  std::uint32_t stops = 0;       // attempts that were stopped, for any reason
  std::optional<double> start_s, save_s;
  std::optional<double> pause_s;      // of its last stop: until the next attempt's first iteration
  std::uint64_t lost_iterations = 0;  // completed, but not saved by the attempt that did them
  std::vector<rate_status> rates;

  TROUPE_FIELDS(elastic_status, saved, world_size, stops, start_s, save_s, pause_s, lost_iterations,
                rates);
};

/// One job as a table row.
struct job_status {
  job_id job = 0;
  std::string name;
  job_state state = job_state::waiting;
  double submitted_s = 0;  // controller's clock; 0: not yet
  double started_s = 0;    // 0: not yet
  double ended_s = 0;      // 0: not yet
  job_progress progress;
  memory_history history;
  plan how;                    // of the present or last attempt
  allocation where;            // the first has rank 0
  double predicted_bytes = 0;  // per GPU; 0: unknown
  double peak_bytes = 0;       // per GPU; 0: unknown
  std::string detail;          // why it failed, on which node it was lost, ...
  /// The name of the key that submitted it; `local` where there are no keys.
  std::string owner;
  std::string waiting_reason;             // a few words; empty: it is not waiting
  std::string model;                      // its name; empty: the job gives costs in slots
  std::vector<std::string> command;       // empty: a training, or simulated work
  std::int32_t priority = 0;              // larger first
  std::optional<std::int32_t> exit_code;  // of the last command that ended; 128 + n for signal n
  /// Completed iterations, as last reported; `progress.iterations_done` of them survive a failure.
  std::uint64_t iteration = 0;
  std::uint64_t iterations = 0;                // of the whole job; 0: unknown
  std::optional<double> loss;                  // of the newest reported iteration
  std::optional<double> tokens_per_s;          // of a training
  std::optional<double> eta_s;                 // seconds from now to the expected end
  std::optional<std::uint32_t> failed_rank{};  // of the last attempt: the first part that failed
  std::optional<std::string> failed_node{};    // the node of that part
  /// Parts of a program on several nodes that have ended; none: no part has.
  std::optional<std::vector<std::uint32_t>> ended_ranks{};
  /// Jobs that run as one with it, on the same GPUs; none: it runs by itself.
  std::optional<std::vector<job_id>> merged_with{};
  std::optional<lease_id> lease{};  // the present or last one; merged jobs have the same
  /// The lease that still has some of its GPUs, which pass to this job with the end of that one's
  /// part; none: it has all of them.
  std::optional<lease_id> follows{};
  std::optional<elastic_status> elastic{};  // of an elastic program
  std::optional<end_word> why{};  // of an ended job, or of the last attempt of a waiting one
  std::optional<std::vector<attempt_end>> ends{};  // of its attempts that have ended
  std::optional<double> retry_in_s{};  // it is not started before; none: it does not wait for that
  /// A sentence for each group of its plan's pipelines; none: they are alike.
  std::optional<std::vector<std::string>> groups{};
  std::optional<held_out_losses> held_out{};  // of a training that has evaluated
  static constexpr std::size_t required = 24;

  TROUPE_FIELDS(job_status, job, name, state, submitted_s, started_s, ended_s, progress, history,
                how, where, predicted_bytes, peak_bytes, detail, owner, waiting_reason, model,
                command, priority, exit_code, iteration, iterations, loss, tokens_per_s, eta_s,
                failed_rank, failed_node, ended_ranks, merged_with, lease, follows, elastic, why,
                ends, retry_in_s, groups, held_out);
};

/// A job's row as far as its file determines it. Keys that clients see are copied here, next to
/// the fields that show them.
inline job_status status_from(const job_spec& spec) {
  job_status s;
  s.name = spec.name;
  s.model = spec.assumed.model ? std::string{} : spec.model.name;
  s.command = spec.program.command;
  s.priority = spec.priority;
  return s;
}

/// As work_facts::has_processes of its work.
inline bool has_processes(const job_status& s) {
  return !s.command.empty();
}

/// Answered by `query_reply`.
struct query_jobs {
  std::uint64_t request = 0;
  /// One job's number; 0: all unfinished jobs and the last hundred finished ones.
  job_id job = 0;
  std::optional<bool> view{};  // true, and not all jobs: with a view of the cluster
  std::optional<bool> spec{};  // true, and one job: with what was submitted
  /// The answer may be a page: jobs from this number on, and `next`; none: the first jobs.
  std::optional<job_id> from{};
  static constexpr std::size_t required = 2;

  TROUPE_FIELDS(query_jobs, request, job, view, spec, from);
};

/// One node as a table row.
struct node_status {
  node_index node = 0;  // index in the cluster
  std::string name, gpu_type;
  bool present = false;
  std::uint32_t gpus = 0;         // the node's
  std::uint32_t idle = 0;         // of them, not held by any job; 0 while it is absent
  std::optional<bool> drained{};  // it gets no new work; none: no
  std::optional<bool> removed{};  // it left the cluster; earlier work keeps its name; none: no
  static constexpr std::size_t required = 6;

  TROUPE_FIELDS(node_status, node, name, gpu_type, present, gpus, idle, drained, removed);
};

/// "present", "absent", "draining" (it still has work) or "drained".
inline const char* state_of(const node_status& n) {
  if (n.drained.value_or(false)) return n.idle < n.gpus ? "draining" : "drained";
  return n.present ? "present" : "absent";
}

/// One gateway as a table row.
struct gateway_status {
  std::string datacenter;
  gateway_traffic traffic;  // as last reported

  TROUPE_FIELDS(gateway_status, datacenter, traffic);
};

/// The scheduler's rounds and decisions since the controller's start.
struct scheduling_counts {
  std::uint64_t rounds = 0;   // calls of the policy
  double rounds_s = 0;        // the time that they took
  std::uint64_t started = 0;  // decisions to start a job
  std::uint64_t moved = 0;    // to stop it and start it elsewhere
  std::uint64_t stopped = 0;  // to stop it
  std::uint64_t refused = 0;  // decisions that could not be carried out

  TROUPE_FIELDS(scheduling_counts, rounds, rounds_s, started, moved, stopped, refused);
};

/// One front as a table row.
struct front_status {
  std::string name;
  bool present = false;
  front_report report;  // as last reported

  TROUPE_FIELDS(front_status, name, present, report);
};

/// The parts of a cluster between a reply's nodes and gateways.
struct cluster_view {
  std::string name;                        // the cluster's
  std::vector<std::uint32_t> datacenters;  // of each node: index into query_reply::gateways
  std::vector<wan_link> wan;               // as in the cluster file
  scheduling_counts scheduling;
  std::optional<std::vector<front_status>> fronts{};  // none: the cluster file has none
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(cluster_view, name, datacenters, wan, scheduling, fronts);
};

/// The answer to `query_jobs`.
struct query_reply {
  std::uint64_t request = 0;  // the request's
  std::string policy;         // the active policy
  double now_s = 0;           // the controller's clock
  std::vector<job_status> jobs;
  std::vector<node_status> nodes;
  std::vector<std::string> gateways_absent;  // names of datacenters whose gateway is not connected
  std::vector<gateway_status> gateways{};    // of all datacenters
  std::optional<cluster_view> view{};        // if it was asked for
  /// There are ended jobs besides those of the list; none: no. Numbers do not tell: the
  /// controller uses some for itself.
  std::optional<bool> older_left_out{};
  /// The job as submitted, if it was asked for by its owner or an operator.
  std::optional<job_spec> spec{};
  std::optional<job_id> next{};  // ask again from this job on for the rest of a long list
  static constexpr std::size_t required = 6;

  TROUPE_FIELDS(query_reply, request, policy, now_s, jobs, nodes, gateways_absent, gateways, view,
                older_left_out, spec, next);
};

/// Answered by `explanation`.
struct explain_job {
  std::uint64_t request = 0;
  job_id job = 0;  // the job's number

  TROUPE_FIELDS(explain_job, request, job);
};

/// A plan of MARP, and why it was or was not chosen.
struct considered_plan {
  plan what;
  bool chosen = false;
  std::string verdict;  // a sentence
  double metric = 0;    // the ranking metric (`explanation.metric`); larger is better
  std::vector<std::string> gpu_types{};  // names of the GPU types that the plan is for
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(considered_plan, what, chosen, verdict, metric, gpu_types);
};

/// Predicted and measured values of one attempt that really ran.
struct memory_record {
  plan what;
  double predicted_bytes = 0;  // per GPU
  double peak_bytes = 0;       // per GPU; 0: not measured
  bool out_of_memory = false;

  TROUPE_FIELDS(memory_record, what, predicted_bytes, peak_bytes, out_of_memory);
};

/// Jobs that a job is merged with. While it waits: the waiting job that is the closest to it.
struct merge_view {
  std::string kind;                        // `shared` or `adapters`
  std::vector<job_id> with;                // empty: there is no such job
  std::optional<double> similarity{};      // of their dataset cards, 0 to 1: the smallest
  std::optional<double> duration_ratio{};  // of the longer to the shorter: the largest, if known
  std::string why_not;                     // a sentence; empty: they are, or may be, merged

  TROUPE_FIELDS(merge_view, kind, with, similarity, duration_ratio, why_not);
};

/// The answer to `explain_job`.
struct explanation {
  std::uint64_t request = 0;  // the request's
  job_status job;             // its `job` is 0 if the job does not exist
  std::string summary;        // one sentence: why it is waiting, or why it runs where it does
  std::vector<considered_plan> plans;  // that were made for the job, with a verdict on each
  std::vector<memory_record> memory;   // prediction and measurement, one per attempt
  std::string metric;                  // name and unit of the plans' metric
  std::vector<std::string> placement;  // sentences: why these nodes, and why not the others
  std::optional<merge_view> merge{};   // none: its policy merges no jobs, or it has ended
  /// The lease whose GPUs have passed, or will pass, to the job's present one.
  std::optional<lease_id> follows{};
  /// Sentences: what the estimate of its GPUs rests on that nobody has measured; none: nothing.
  std::optional<std::vector<std::string>> guesses{};
  static constexpr std::size_t required = 7;

  TROUPE_FIELDS(explanation, request, job, summary, plans, memory, metric, placement, merge,
                follows, guesses);
};

/// Client to controller, which forwards it to the node with rank 0 of the attempt (or `part`).
/// Answered by `log_chunk`, usually from that node. To follow a log, ask again from the end of the
/// last chunk, after a pause if it was empty.
struct read_log {
  std::uint64_t request = 0;  // a new number for each offset
  job_id job = 0;             // the job's number
  /// From a client: an attempt, 1 the first, 0 the latest; to a node: the attempt's lease.
  lease_id lease = 0;
  std::uint32_t part = 0;  // a node of the attempt, by rank; 0 has rank 0
  /// Bytes from the beginning of the log; beyond its end, the answer has the end's offset.
  std::uint64_t offset = 0;

  TROUPE_FIELDS(read_log, request, job, lease, part, offset);
};

/// A piece of a log, in the frame's body.
struct log_chunk {
  std::uint64_t request = 0;  // the request's
  lease_id lease = 0;         // the attempt whose log this is
  std::uint64_t offset = 0;   // offset of the body in the log
  bool ended = false;         // the log is complete: no more will follow
  /// If the body is empty: why there is no log; an empty text: no further output yet.
  reason why;

  TROUPE_FIELDS(log_chunk, request, lease, offset, ended, why);
};

}  // namespace troupe
