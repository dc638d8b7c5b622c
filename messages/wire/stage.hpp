#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "messages/base/duration_counts.hpp"
#include "messages/base/reason.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/model.hpp"
#include "messages/domain/stage_name.hpp"
#include "messages/domain/training.hpp"
#include "messages/wire/prefill.hpp"

// Between a trainer, its stages and the gateways between them, except `query_training` and its
// answer. A stage is identified by (lease, pipeline, stage). docs/operating.md describes how
// gateways share a WAN.

namespace troupe {

/// The path of a tensor over the WAN (ATLAS, section 4.3): the node pairs `first_pair` to
/// `first_pair + pairs - 1`, one for each pipeline of the sender's DP-cell. No pairs: it does not
/// cross the WAN.
struct wan_path {
  std::uint32_t first_pair = 0;   // the first of the node pairs whose bandwidth it uses
  std::uint32_t pairs = 1;        // number of pairs
  std::uint32_t connections = 1;  // of each pair
  bool serialized = false;        // one transfer at a time per hop and direction of the DP-cell
  std::uint32_t rank = 0;         // if serialized: the smallest waiting rank goes first

  static constexpr auto fields() {
    using t = wan_path;
    return std::tuple{&t::first_pair, &t::pairs, &t::connections, &t::serialized, &t::rank};
  }
  bool operator==(const wan_path&) const = default;
};

/// Stage to stage, directly inside a datacenter, else through the gateways of their nodes. The
/// frame's body is the data; in a simulation it is empty, and the transfer takes as long as `bytes`
/// would.
struct tensor {
  enum class kind : std::uint8_t {
    activation,    // to the next stage
    gradient,      // to the stage before
    partial,       // data parallel: the sender's gradients of the receiver's chunk
    sum,           // data parallel: the sender's chunk, summed over all pipelines
    tied_partial,  // the last stage's gradient of a tied embedding, to the first
    tied_sum       // the sum of both, back to the last
  };
  kind what = kind::activation;
  stage_name from;
  std::uint32_t to_pipeline = 0, to_stage = 0;
  std::uint64_t iteration = 0;
  std::uint32_t microbatch = 0;
  std::uint64_t bytes = 0;
  double sent_s = 0;  // on the trainer's clock
  wan_path path;

  static constexpr auto fields() {
    using t = tensor;
    return std::tuple{&t::what,       &t::from,  &t::to_pipeline, &t::to_stage, &t::iteration,
                      &t::microbatch, &t::bytes, &t::sent_s,      &t::path};
  }
  bool operator==(const tensor&) const = default;
};

/// Stage to stage: tensors of an iteration that have not arrived. The receiver sends those again,
/// as `tensor`, that it sent at least `older_than_s` ago, and half a second at the least; that time
/// doubles with each repetition, up to four times. A tensor that it has not sent yet follows when
/// it is computed, and has no other answer. A tensor that arrives twice is taken once.
struct tensor_request {
  tensor::kind what = tensor::kind::activation;
  stage_name from;                              // the stage that waits
  std::uint32_t to_pipeline = 0, to_stage = 0;  // of the stage that sends such tensors to it
  std::uint64_t iteration = 0;
  /// Those that are missing, of activations and gradients; of others none.
  std::vector<std::uint32_t> microbatches;
  double older_than_s = 0;  // minimum time since it was sent; at least half a second

  static constexpr auto fields() {
    using t = tensor_request;
    return std::tuple{&t::what,      &t::from,         &t::to_pipeline, &t::to_stage,
                      &t::iteration, &t::microbatches, &t::older_than_s};
  }
  bool operator==(const tensor_request&) const = default;
};

/// Gateway to gateway: a part of a tensor's data, in the body, over one connection of a node pair.
/// The receiver reassembles the tensor when all `count` parts have arrived, and delivers it at
/// once: tensors may overtake each other. A transfer that gets no further for 5 s is dropped. A
/// flow is the sequence of tensors from one stage to another.
struct stripe {
  std::uint64_t epoch = 0;  // of the flow at the sending gateway; a new one restarts the numbering
  std::uint64_t transfer = 0;  // the tensor's number in the flow's epoch, from 0
  std::uint32_t index = 0;     // of this stripe
  std::uint32_t count = 1;     // of the tensor's stripes
  std::uint64_t offset = 0;    // of this part in the tensor
  address from = 0;            // the tensor's sender: a node
  address to = 0;              // the tensor's receiver: a node
  tensor what;

  static constexpr auto fields() {
    using t = stripe;
    return std::tuple{&t::epoch,  &t::transfer, &t::index, &t::count,
                      &t::offset, &t::from,     &t::to,    &t::what};
  }
  bool operator==(const stripe&) const = default;
};

/// One step of a stage's order.
struct stage_step {
  enum class kind : std::uint8_t { forward, recompute, backward };
  kind what = kind::forward;
  std::uint32_t microbatch = 0;
  std::uint32_t rank = 0;  // rank of the tensor that it sends

  static constexpr auto fields() {
    return std::tuple{&stage_step::what, &stage_step::microbatch, &stage_step::rank};
  }
  bool operator==(const stage_step&) const = default;
};

/// The guest of a stage, and the plan for its time.
struct guest_setup {
  bubble_lending how;
  guest_place place;
  stage_timetable times;  // when the plan has the stage compute

  static constexpr auto fields() {
    return std::tuple{&guest_setup::how, &guest_setup::place, &guest_setup::times};
  }
  bool operator==(const guest_setup&) const = default;
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
  static constexpr std::size_t required = 24;

  static constexpr auto fields() {
    using t = stage_setup;
    return std::tuple{
        &t::name,         &t::incarnation,    &t::devices,   &t::backend,         &t::model,
        &t::how,          &t::first_sublayer, &t::sublayers, &t::stages,          &t::pipelines,
        &t::microbatches, &t::rows,           &t::order,     &t::neighbours,      &t::peers,
        &t::forward,      &t::backward,       &t::tied,      &t::first_iteration, &t::iterations,
        &t::costs,        &t::trace,          &t::sent_s,    &t::emulate_speed,   &t::guest};
  }
  bool operator==(const stage_setup&) const = default;
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
  // the first iteration; empty: hosts all-reduce.
  std::vector<std::uint8_t> group_id{};
  std::uint64_t incarnation = 0;  // of the trainer; stages of another one ignore it. 0: any
  /// By the trainer's monotonic clock, which is the clock of the training.
  double sent_s = 0;
  double ahead_s = 0;      // offset of the stage host's clock, estimated from round trips
  bool halt = false;       // begin no more iterations until `save` names the last one
  std::uint64_t save = 0;  // the last iteration, to be saved; 0: not yet known
  std::optional<stage_timetable> guest_times{};  // if those of its guest have changed
  static constexpr std::size_t required = 12;

  static constexpr auto fields() {
    using t = stage_run;
    return std::tuple{&t::name,     &t::until,    &t::acknowledged, &t::order,  &t::forward,
                      &t::backward, &t::group_id, &t::incarnation,  &t::sent_s, &t::ahead_s,
                      &t::halt,     &t::save,     &t::guest_times};
  }
  bool operator==(const stage_run&) const = default;
};

/// A task of a stage, with times on the trainer's clock.
struct timed_task {
  /// A task_kind; unknown kinds are ignored, and not the whole report with them.
  std::uint8_t what = 0;
  std::uint32_t microbatch = 0;  // of a guest: counts its prompts
  double begin_s = 0, end_s = 0;

  static constexpr auto fields() {
    using t = timed_task;
    return std::tuple{&t::what, &t::microbatch, &t::begin_s, &t::end_s};
  }
  bool operator==(const timed_task&) const = default;
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

  static constexpr auto fields() {
    using t = bubble_use;
    return std::tuple{&t::guest_steps, &t::guest_s,       &t::delayed_steps,
                      &t::delay_s,     &t::worst_delay_s, &t::guard_s,
                      &t::paused,      &t::idle_s,        &t::delays};
  }
  /// Quantile of the delayed steps' delays; 0 if there are none.
  double delay_quantile_s(double fraction) const {
    return delays ? std::min(delays->quantile_s(fraction), worst_delay_s) : 0;
  }
  bool operator==(const bubble_use&) const = default;
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
  std::vector<std::uint8_t> group_id;
  reason fallback_reason;                 // or why its devices cannot join a group
  bool starting = false;                  // still being set up: no other field counts
  double request_sent_s = 0;              // `sent_s` of the latest setup or run received
  double received_s = 0;                  // when that arrived, by the clock of the stage's host
  double replied_s = 0;                   // when this was sent, by the same clock
  std::optional<std::uint64_t> halts_at;  // after a halt: iterations completed by then
  std::optional<bubble_use> bubbles{};    // with a guest: what it did in this iteration
  static constexpr std::size_t required = 21;

  static constexpr auto fields() {
    using t = stage_report;
    return std::tuple{&t::name,         &t::incarnation,    &t::iteration,  &t::loss,
                      &t::squared_norm, &t::begin_s,        &t::end_s,      &t::busy_s,
                      &t::measured,     &t::max_in_flight,  &t::sent_bytes, &t::saved,
                      &t::why,          &t::tasks,          &t::group_id,   &t::fallback_reason,
                      &t::starting,     &t::request_sent_s, &t::received_s, &t::replied_s,
                      &t::halts_at,     &t::bubbles};
  }
  bool operator==(const stage_report&) const = default;
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
  static constexpr std::size_t required = 6;

  static constexpr auto fields() {
    using t = iteration_record;
    return std::tuple{&t::iteration, &t::loss,   &t::gradient_norm, &t::begin_s,
                      &t::end_s,     &t::busy_s, &t::guest_s};
  }
  bool operator==(const iteration_record&) const = default;
};

/// The tasks of one stage's devices.
struct stage_timeline {
  std::uint32_t pipeline = 0, stage = 0;
  node_index node = 0;                 // index in the cluster file
  std::vector<std::uint16_t> devices;  // of the node; several: tensor parallel
  /// Tasks of the iteration, in seconds since it began; empty if there are very many.
  std::vector<timed_task> tasks;
  std::vector<double> busy_s;  // since the trainer's start, by timed_task::what

  static constexpr auto fields() {
    using t = stage_timeline;
    return std::tuple{&t::pipeline, &t::stage, &t::node, &t::devices, &t::tasks, &t::busy_s};
  }
  bool operator==(const stage_timeline&) const = default;
};

/// The newest iteration that all stages have completed.
struct iteration_timeline {
  std::uint64_t iteration = 0;
  double length_s = 0;
  std::vector<stage_timeline> stages;

  static constexpr auto fields() {
    using t = iteration_timeline;
    return std::tuple{&t::iteration, &t::length_s, &t::stages};
  }
  bool operator==(const iteration_timeline&) const = default;
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
  static constexpr std::size_t required = 19;

  static constexpr auto fields() {
    using t = training_report;
    return std::tuple{&t::lease,           &t::job,          &t::sequence,      &t::schedule,
                      &t::device,          &t::stages,       &t::pipelines,     &t::microbatches,
                      &t::tensor_parallel, &t::tokens_per_s, &t::max_in_flight, &t::wan_bytes,
                      &t::wan_utilization, &t::saved,        &t::measured,      &t::planned_s,
                      &t::lower_bound_s,   &t::events,       &t::iterations,    &t::bubbles,
                      &t::timeline};
  }
  bool operator==(const training_report&) const = default;
};

/// Controller to trainer: it has that report and all earlier ones.
struct training_report_ack {
  lease_id lease = 0;
  std::uint64_t sequence = 0;  // of the report

  static constexpr auto fields() {
    return std::tuple{&training_report_ack::lease, &training_report_ack::sequence};
  }
  bool operator==(const training_report_ack&) const = default;
};

/// Client to controller. Answered by `training_reply`.
struct query_training {
  std::uint64_t request = 0;
  job_id job = 0;
  std::uint64_t after = 0;  // position of an earlier training_reply; 0: the whole history

  static constexpr auto fields() {
    return std::tuple{&query_training::request, &query_training::job, &query_training::after};
  }
  bool operator==(const query_training&) const = default;
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

  static constexpr auto fields() {
    using t = training_reply;
    return std::tuple{&t::request, &t::report, &t::why, &t::position};
  }
  bool operator==(const training_reply&) const = default;
};

}  // namespace troupe
