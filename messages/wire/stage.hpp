#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/duration_counts.hpp"
#include "messages/base/fields.hpp"
#include "messages/base/reason.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/model.hpp"
#include "messages/domain/stage_name.hpp"
#include "messages/domain/training.hpp"
#include "messages/wire/guest.hpp"
#include "messages/wire/tensor.hpp"

// Between a trainer and its stages, except `query_training` and its answer. A stage is identified
// by (lease, pipeline, stage).

namespace troupe {

/// One step of a stage's order.
struct stage_step {
  enum class kind : std::uint8_t { forward, recompute, backward };
  kind what = kind::forward;
  std::uint32_t microbatch = 0;
  std::uint32_t turn = 0;  // turn of the tensor that it sends

  TROUPE_FIELDS(stage_step, what, microbatch, turn);
};

/// A pipeline's part of the global batch: it reads the micro-batches from `first` on, of `all` that
/// the pipelines have together.
struct batch_share {
  std::uint64_t first = 0;
  std::uint64_t all = 1;

  TROUPE_FIELDS(batch_share, first, all);
};

/// Where the peers of a stage are, if in several datacenters, and how their running sums
/// cross the WAN. Consecutive pipelines in one datacenter sum their gradients there; the sum of a
/// chunk then goes on to the next of these runs of pipelines, and the last one's comes back.
struct peer_sites {
  std::vector<std::uint32_t> datacenters;  // by pipeline, as indices into the cluster's
  wan_path forward;   // of `running`, to the next run; no pairs: it is the last
  wan_path backward;  // of `running_sum`, to the run before; likewise

  TROUPE_FIELDS(peer_sites, datacenters, forward, backward);
};

/// Trainer to node: create this stage. Repeated until a `stage_report` answers; an existing stage
/// answers again.
struct stage_setup {
  stage_name name;
  std::uint64_t incarnation = 0;       // of the trainer; a larger one replaces the stage
  std::vector<std::uint16_t> devices;  // of the node; several share the stage (tensor parallel)
  std::string backend;                 // `sim`, `cpu`, `cuda`
  troupe::model model;
  training how;
  std::uint32_t first_sublayer = 0;  // 2i is the attention of layer i, 2i + 1 its MLP
  std::uint32_t sublayers = 0;       // their number; none: embedding or head only
  std::uint32_t stages = 1;          // of the pipeline
  std::uint32_t pipelines = 1;
  std::uint32_t microbatches = 1;  // of a pipeline in an iteration
  std::uint32_t rows = 1;          // sequences per micro-batch
  std::vector<stage_step> order;   // of one iteration
  /// Addresses of this pipeline's nodes, by stage, its own included.
  std::vector<address> neighbours;
  std::vector<address> peers;  // addresses of this stage's nodes, by pipeline
  /// How its tensors cross the WAN to the next stage; no pairs: they do not.
  wan_path forward;
  wan_path backward;                  // the same to the previous stage
  wan_path tied;                      // the same of a tied embedding's gradients
  std::uint64_t first_iteration = 0;  // above 0: load the checkpoint after that many
  std::uint64_t iterations = 0;       // the job's
  stage_costs costs;                  // of a simulated device
  bool trace = false;                 // report the times of all tasks
  double sent_s = 0;                  // by the trainer's monotonic clock
  double emulate_speed = 1;           // of its node, if that is emulated as slower
  /// The served model's layers that run in this stage's bubbles.
  std::optional<guest_setup> guest{};
  /// pipeline_wish::recompute_layers.
  std::optional<bool> recompute_layers{};
  /// None: all pipelines have as many micro-batches as this one.
  std::optional<batch_share> share{};
  /// None: all peers are in one datacenter.
  std::optional<peer_sites> sites{};
  /// Its view, from 0. None: the training does not heal, and a stage that fails ends it.
  std::optional<std::uint64_t> view{};
  /// It shares the weights and the devices of its peer of this pipeline, which is on its node.
  std::optional<std::uint32_t> shares_with{};
  /// The stage was lost. Its device makes itself ready and then waits for a view to join, whose
  /// beginning says from where; a larger number than the last one's begins anew. Else none.
  std::optional<std::uint64_t> standby{};
  /// Its node keeps copies of the state after its latest updates, for a worker that ends: no peer
  /// has that state.
  std::optional<bool> keeps{};
  static constexpr std::size_t required = 24;

  TROUPE_FIELDS(stage_setup, name, incarnation, devices, backend, model, how, first_sublayer,
                sublayers, stages, pipelines, microbatches, rows, order, neighbours, peers, forward,
                backward, tied, first_iteration, iterations, costs, trace, sent_s, emulate_speed,
                guest, recompute_layers, share, sites, view, shares_with, standby, keeps);

  /// The first of this pipeline's micro-batches, and their number, among all pipelines'.
  std::uint64_t first_microbatch() const {
    return share ? share->first : std::uint64_t{name.pipeline} * microbatches;
  }
  std::uint64_t all_microbatches() const {
    return share ? share->all : std::uint64_t{microbatches} * pipelines;
  }
};

/// Where the stages of a view are, from an iteration on; a view is numbered within its trainer's
/// incarnation.
struct view_begin {
  std::uint64_t view = 0;
  std::uint64_t from = 0;           // iterations done when it begins
  std::vector<address> neighbours;  // as in a stage's setup
  std::vector<address> peers;
  /// Pipelines whose stages share its weights, itself included: they run in this order.
  std::vector<std::uint32_t> pipelines;
  /// The pipelines whose stages get its state of `from`, before its next step. None: nobody does.
  std::optional<std::vector<std::uint32_t>> gives{};
  /// It stands by, and takes the state of `from` of its peer of this pipeline.
  std::optional<std::uint32_t> takes{};
  /// The update before `from`, which stages that are ready for it have yet to do.
  std::optional<agreed_update> update{};
  /// It takes the state of `from` of which its node has a copy.
  std::optional<bool> restores{};
  static constexpr std::size_t required = 5;

  TROUPE_FIELDS(view_begin, view, from, neighbours, peers, pipelines, gives, takes, update,
                restores);
};

/// Trainer to stage: continue until `until` iterations are done, and write the checkpoints that the
/// job requests.
struct stage_run {
  stage_name name;
  std::uint64_t until = 0;  // this many iterations are done
  /// Iterations whose reports the trainer has; later ones are resent.
  std::uint64_t acknowledged = 0;
  // The new order from now on; empty: unchanged. Only sent when no iteration is running.
  std::vector<stage_step> order;
  wan_path forward;   // with an order: how activations cross the WAN from then on
  wan_path backward;  // the same of gradients
  // The id of the collective communicator that the devices of this stage and its peers join before
  // the first iteration, which is allowed once all have; empty: hosts all-reduce.
  std::vector<std::uint8_t> communicator_id{};
  std::uint64_t incarnation = 0;  // of the trainer; stages of another one ignore it. 0: any
  /// By the trainer's monotonic clock, which is the clock of the training.
  double sent_s = 0;
  double ahead_s = 0;      // offset of the stage host's clock, estimated from round trips
  bool halt = false;       // begin no more iterations until `save` names the last one
  std::uint64_t save = 0;  // the last iteration, to be saved; 0: not yet known
  std::optional<stage_timetable> guest_times{};  // if those of its guest have changed
  /// Stop in the views before this one, and say where the stage is.
  std::optional<std::uint64_t> gather{};
  std::optional<view_begin> begin{};  // go on in this view
  static constexpr std::size_t required = 12;

  TROUPE_FIELDS(stage_run, name, until, acknowledged, order, forward, backward, communicator_id,
                incarnation, sent_s, ahead_s, halt, save, guest_times, gather, begin);
};

/// A task of a stage, with times on the trainer's clock.
struct timed_task {
  /// A task_kind; unknown kinds are ignored, and not the whole report with them.
  std::uint8_t what = 0;
  std::uint32_t microbatch = 0;  // of a guest: counts its prompts
  double begin_s = 0, end_s = 0;

  TROUPE_FIELDS(timed_task, what, microbatch, begin_s, end_s);
};

/// The operations of a guest on a stage's device during an iteration, and the delays of the stage's
/// own operations by them.
struct bubble_use {
  std::uint64_t guest_steps = 0;  // operations of the guest
  double guest_s = 0;             // time of these
  /// Operations of the training that waited for one of the guest's.
  std::uint64_t delayed_steps = 0;
  double delay_s = 0;        // how long, in all
  double worst_delay_s = 0;  // the longest of these
  double guard_s = 0;        // before the training's next step, at this time
  /// There were too many delays: the guest gets no time for a while.
  bool paused = false;
  /// How long the training left the device idle; of stages that lend it.
  std::optional<double> idle_s{};
  std::optional<duration_counts> delays{};  // of the delayed operations, if there are any
  static constexpr std::size_t required = 7;

  TROUPE_FIELDS(bubble_use, guest_steps, guest_s, delayed_steps, delay_s, worst_delay_s, guard_s,
                paused, idle_s, delays);
  /// Quantile of the delayed steps' delays; 0 if there are none.
  double delay_quantile_s(double fraction) const {
    return delays ? std::min(delays->quantile_s(fraction), worst_delay_s) : 0;
  }
};

/// The worker of a program's stage.
struct worker_report {
  std::string engine;               // when it is ready: "torch 1.13.1 (libopenblasp-r0.3.21.so)"
  double ready_s = 0;               // when it is ready: since it was started
  std::uint64_t peak_bytes = 0;     // the largest use of memory so far; 0: unknown
  bool skipped = false;             // this iteration's update, as the norm was not finite (fp16)
  std::vector<named_value> values;  // the last stage: sums over its micro-batches

  TROUPE_FIELDS(worker_report, engine, ready_s, peak_bytes, skipped, values);
};

/// The answer to `stage_run::gather` or `stage_run::begin`.
struct view_place {
  std::uint64_t view = 0;
  bool begun = false;          // it goes on in that view; otherwise it waits for its beginning
  std::uint64_t boundary = 0;  // updates done
  bool ready = false;          // it holds all sums of the next update
  /// The update before the boundary, if the stage knows it.
  std::optional<agreed_update> update{};
  /// It goes on only from a copy of its state.
  std::optional<bool> restores{};
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(view_place, view, begun, boundary, ready, update, restores);
};

/// Stage to trainer: it is ready (iteration is that of the setup), or has completed another
/// iteration, or has failed.
struct stage_report {
  stage_name name;
  std::uint64_t incarnation = 0;    // the setup's
  std::uint64_t iteration = 0;      // completed, from the job's beginning
  double loss = 0;                  // the last stage: mean over its micro-batches
  double squared_norm = 0;          // of the reduced gradients that only this stage has
  double begin_s = 0;               // of the first task
  double end_s = 0;                 // of the last, the update included
  double busy_s = 0;                // forward, recompute and backward
  stage_costs measured;             // means of this iteration
  std::uint32_t max_in_flight = 0;  // peak in-flight micro-batches
  std::uint64_t sent_bytes = 0;     // to other datacenters
  std::uint64_t saved = 0;          // iterations in the newest checkpoint of this stage
  reason why;                       // empty text: no error
  std::vector<timed_task> tasks;    // if requested by `trace`
  // When it is ready, of devices that can all-reduce directly: the id of a communicator, created by
  // pipeline 0's; or why this device cannot.
  std::vector<std::uint8_t> communicator_id;
  reason fallback_reason;                 // or why its devices cannot join a group
  bool starting = false;                  // still being set up: no other field counts
  double request_sent_s = 0;              // `sent_s` of the latest setup or run received
  double received_s = 0;                  // when that arrived, by the clock of the stage's host
  double replied_s = 0;                   // when this was sent, by the same clock
  std::optional<std::uint64_t> halts_at;  // after a halt: iterations completed by then
  std::optional<bubble_use> bubbles{};    // with a guest: what it did in this iteration
  /// The answer to a group's id: whether its device has joined; if not, `fallback_reason` says why.
  std::optional<bool> joined{};
  std::optional<worker_report> worker{};  // of a program
  std::optional<view_place> place{};
  /// Its device is ready to join, or failed to be: the setup's `standby`.
  std::optional<std::uint64_t> standby{};
  /// With a place, when it stands by, or when its worker has ended: the iterations after which its
  /// node has copies of its state, ascending. None: the setup asks for none.
  std::optional<std::vector<std::uint64_t>> copies{};
  static constexpr std::size_t required = 21;

  TROUPE_FIELDS(stage_report, name, incarnation, iteration, loss, squared_norm, begin_s, end_s,
                busy_s, measured, max_in_flight, sent_bytes, saved, why, tasks, communicator_id,
                fallback_reason, starting, request_sent_s, received_s, replied_s, halts_at, bubbles,
                joined, worker, place, standby, copies);
};

/// A program's iteration, if it has values or has changed nothing.
struct program_iteration {
  std::vector<named_value> values;  // sums over the global batch
  bool skipped = false;             // the update: the norm was not finite (fp16)

  TROUPE_FIELDS(program_iteration, values, skipped);
};

/// One iteration of a job.
struct iteration_record {
  std::uint64_t iteration = 0;  // from 1
  double loss = 0, gradient_norm = 0;
  /// The begin of its first forward, or the end of the iteration before if that is later.
  double begin_s = 0;
  double end_s = 0;                 // the end of its last update
  double busy_s = 0;                // of all stages
  std::optional<double> guest_s{};  // of their guests, if its bubbles are lent
  std::optional<program_iteration> program{};
  static constexpr std::size_t required = 6;

  TROUPE_FIELDS(iteration_record, iteration, loss, gradient_norm, begin_s, end_s, busy_s, guest_s,
                program);
};

/// The tasks of one stage's devices.
struct stage_timeline {
  std::uint32_t pipeline = 0, stage = 0;
  node_index node = 0;                 // index in the cluster file
  std::vector<std::uint16_t> devices;  // of the node; several: tensor parallel
  /// Tasks of the iteration, in seconds since it began; empty if there are very many.
  std::vector<timed_task> tasks;
  std::vector<double> busy_s;  // since the trainer's start, by timed_task::what

  TROUPE_FIELDS(stage_timeline, pipeline, stage, node, devices, tasks, busy_s);
};

/// The newest iteration that all stages have completed.
struct iteration_timeline {
  std::uint64_t iteration = 0;
  double length_s = 0;
  std::vector<stage_timeline> stages;

  TROUPE_FIELDS(iteration_timeline, iteration, length_s, stages);
};

/// A program's training.
struct program_training {
  std::string engine;                     // "torch 1.13.1 (libopenblasp-r0.3.21.so)"
  double worker_ready_s = 0;              // from a worker's start; of the slowest
  std::vector<std::uint64_t> peak_bytes;  // by stage: of the pipelines the largest so far
  std::uint64_t skipped_updates = 0;      // in this lease

  TROUPE_FIELDS(program_training, engine, worker_ready_s, peak_bytes, skipped_updates);
};

/// How a training has gone on without stages that were lost.
struct training_heals {
  std::uint64_t count = 0;     // changes of its view after losses
  std::uint64_t lost = 0;      // stages that were taken over
  double seconds = 0;          // from each loss's notice until all stages went on
  std::uint64_t repeated = 0;  // iterations that were under way and began again
  /// Devices that came back, and have their stages again. None: none did.
  std::optional<std::uint64_t> joined{};
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(training_heals, count, lost, seconds, repeated, joined);
};

/// Trainer to controller, periodically and at the end. The controller keeps a lease's newest report
/// and every iteration.
struct training_report {
  lease_id lease = 0;
  job_id job = 0;
  std::uint64_t sequence = 0;
  std::string schedule, device;
  std::uint32_t stages = 1, pipelines = 1, microbatches = 1;
  std::uint32_t tensor_parallel = 1;  // devices per stage
  double tokens_per_s = 0;
  std::vector<std::uint32_t> max_in_flight;  // by stage
  std::uint64_t wan_bytes = 0;
  double wan_utilization = 0;         // relative to the hops' rate, during iterations
  std::uint64_t saved = 0;            // iterations in the newest complete checkpoint
  std::vector<stage_costs> measured;  // by stage; medians over the latest iterations
  double planned_s = 0;               // time of an iteration
  double lower_bound_s = 0;           // of an iteration; 0: not requested, or not measured yet
  std::vector<std::string> events;    // events as sentences: resumed, re-planned, their cost
  /// Those that the controller has not acknowledged, the oldest first, at most 256; in a
  /// `training_reply`, all after the query's `after`.
  std::vector<iteration_record> iterations;
  /// If they are lent: of all iterations of this lease and all stages.
  std::optional<bubble_use> bubbles{};
  /// The newest complete iteration; none: devices are simulated, or none is complete.
  std::optional<iteration_timeline> timeline{};
  std::optional<program_training> program{};
  std::optional<training_heals> heals{};      // none: nothing was lost
  std::optional<held_out_losses> held_out{};  // none: it has not evaluated
  static constexpr std::size_t required = 19;

  TROUPE_FIELDS(training_report, lease, job, sequence, schedule, device, stages, pipelines,
                microbatches, tensor_parallel, tokens_per_s, max_in_flight, wan_bytes,
                wan_utilization, saved, measured, planned_s, lower_bound_s, events, iterations,
                bubbles, timeline, program, heals, held_out);
};

/// Controller to trainer: it has that report and all earlier ones.
struct training_report_ack {
  lease_id lease = 0;
  std::uint64_t sequence = 0;  // of the report

  TROUPE_FIELDS(training_report_ack, lease, sequence);
};

/// Client to controller. Answered by `training_reply`.
struct query_training {
  std::uint64_t request = 0;
  job_id job = 0;
  std::uint64_t after = 0;  // position of an earlier training_reply; 0: the whole history

  TROUPE_FIELDS(query_training, request, job, after);
};

/// The newest report, with the iterations and events of every lease after the query's `after`. The
/// controller keeps a bounded history of a training: the newest thousand iterations, at most a
/// thousand older ones, evenly thinned out, and the newest 200 events; of ended trainings only the
/// last hundred. A follower that sends `after` receives every iteration once; a reply has at most
/// about 2,000, some 120 kB. `after` is a position and not the number of an iteration, because
/// iterations are repeated after a checkpoint: an iteration that is not larger than an earlier one
/// replaces that one and all after it. The whole curve is on disk (docs/operating.md,
/// "Monitoring").
struct training_reply {
  std::uint64_t request = 0;  // the request's
  /// The newest report, with the iterations and events of every lease that are newer than `after`.
  training_report report;
  reason why;                  // if there is no report
  std::uint64_t position = 0;  // of the newest iteration or event: the next query's `after`

  TROUPE_FIELDS(training_reply, request, report, why, position);
};

}  // namespace troupe
