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

// Messages between a trainer, its stages, and the gateways between them.

namespace troupe {

/// The path of a tensor over the WAN (ATLAS, section 4.3): the node pairs `first_pair` to
/// `first_pair + pairs - 1`, one for each pipeline of the sender's DP-cell. No pairs: it does not
/// cross the WAN.
struct wan_path {
  std::uint32_t first_pair = 0;
  std::uint32_t pairs = 1;
  std::uint32_t connections = 1;  // of each pair
  bool serialized = false;        // one transfer at a time per hop and direction of the DP-cell
  std::uint32_t rank = 0;         // if serialized: the smallest waiting one goes first

  static constexpr auto fields() {
    using t = wan_path;
    return std::tuple{&t::first_pair, &t::pairs, &t::connections, &t::serialized, &t::rank};
  }
  bool operator==(const wan_path&) const = default;
};

/// The header of a tensor between two stages; the frame's body is its data. In a simulation the
/// body is empty, and the transfer takes as long as `bytes` would.
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

/// Stage to stage: the missing tensors of an iteration. The receiver resends those that it sent
/// long enough ago to be lost; those that it has not sent yet will follow.
struct tensor_request {
  tensor::kind what = tensor::kind::activation;
  stage_name from;  // the stage that waits
  std::uint32_t to_pipeline = 0, to_stage = 0;
  std::uint64_t iteration = 0;
  std::vector<std::uint32_t> microbatches;  // of activations and gradients
  double older_than_s = 0;  // minimum time since it was sent; at least half a second

  static constexpr auto fields() {
    using t = tensor_request;
    return std::tuple{&t::what,      &t::from,         &t::to_pipeline, &t::to_stage,
                      &t::iteration, &t::microbatches, &t::older_than_s};
  }
  bool operator==(const tensor_request&) const = default;
};

/// Gateway to gateway: a part of a tensor, over one connection of a node pair. The body is the
/// bytes [offset, offset + size of the body) of the tensor. A flow is identified by its sending and
/// receiving stage.
struct stripe {
  std::uint64_t epoch = 0;  // of the flow at the sending gateway; a new one restarts the numbering
  std::uint64_t transfer = 0;  // the tensor's number in the epoch, from 0
  std::uint32_t index = 0, count = 1;
  std::uint64_t offset = 0;
  address from = 0, to = 0;  // the tensor's sending and receiving node
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

/// What a stage's node runs in its bubbles, and when these are planned.
struct guest_setup {
  bubble_lending how;
  guest_place place;
  stage_timetable times;

  static constexpr auto fields() {
    return std::tuple{&guest_setup::how, &guest_setup::place, &guest_setup::times};
  }
  bool operator==(const guest_setup&) const = default;
};

/// Trainer to node: run this stage. Repeated until it is answered; an existing stage repeats its
/// answer.
struct stage_setup {
  stage_name name;
  std::uint64_t incarnation = 0;       // of the trainer; a larger one replaces the stage
  std::vector<std::uint16_t> devices;  // of the node; several: tensor parallel
  std::string backend;                 // sim, cpu, cuda
  troupe::model model;
  training how;
  std::uint32_t first_sublayer = 0, sublayers = 0;  // two per layer: attention, then MLP
  std::uint32_t stages = 1, pipelines = 1, microbatches = 1;
  std::uint32_t rows = 1;             // sequences per micro-batch
  std::vector<stage_step> order;      // of one iteration
  std::vector<address> neighbours;    // nodes of this pipeline's stages, by stage
  std::vector<address> peers;         // nodes of this stage, by pipeline
  wan_path forward, backward, tied;   // paths of its tensors
  std::uint64_t first_iteration = 0;  // above 0: load the checkpoint after that many
  std::uint64_t iterations = 0;       // the job's
  stage_costs costs;
  bool trace = false;        // report the times of all tasks
  double sent_s = 0;         // on the trainer's clock
  double emulate_speed = 1;  // of its node, if that is emulated as slower
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

/// Trainer to stage: continue until that many iterations are done, and write the checkpoints that
/// the job requests. `acknowledged`: iterations whose reports the trainer has; later ones are
/// resent.
struct stage_run {
  stage_name name;
  std::uint64_t until = 0;
  std::uint64_t acknowledged = 0;
  // The new order from now on; empty: unchanged. Only sent when no iteration is running.
  std::vector<stage_step> order;
  wan_path forward, backward;  // with an order: the paths of its tensors
  // The id of the collective communicator that the devices of this stage and its peers join before
  // the first iteration; empty: hosts all-reduce.
  std::vector<std::uint8_t> group_id{};
  std::uint64_t incarnation = 0;  // of the trainer; stages of another one ignore it. 0: any
  double sent_s = 0;              // on the trainer's clock
  double ahead_s = 0;             // how far the stage's host's clock is ahead of that
  bool halt = false;              // begin no more iterations until `save` names the last one
  std::uint64_t save = 0;         // the last iteration, to be saved; 0: not yet known
  std::optional<stage_timetable> guest_times{};  // if its guest's have changed
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
  // A task_kind (messages/wire/task_kind.hpp). Not an enum on the wire: of a kind that is new, the
  // task is ignored, and not the whole report.
  std::uint8_t what = 0;
  std::uint32_t microbatch = 0;
  double begin_s = 0, end_s = 0;

  static constexpr auto fields() {
    using t = timed_task;
    return std::tuple{&t::what, &t::microbatch, &t::begin_s, &t::end_s};
  }
  bool operator==(const timed_task&) const = default;
};

/// What a guest has computed on a stage's device during an iteration, and the delays of the stage's
/// own operations by it.
struct bubble_use {
  std::uint64_t guest_steps = 0;
  double guest_s = 0;  // of these
  std::uint64_t delayed_steps = 0;
  double delay_s = 0, worst_delay_s = 0;
  double guard_s = 0;  // at present
  /// There were too many delays: the guest gets no time for a while.
  bool paused = false;
  /// How long the training left the device idle; of stages that lend it.
  std::optional<double> idle_s{};
  std::optional<duration_counts> delays{};  // of the delayed steps, if there are any
  static constexpr std::size_t required = 7;

  static constexpr auto fields() {
    using t = bubble_use;
    return std::tuple{&t::guest_steps, &t::guest_s,       &t::delayed_steps,
                      &t::delay_s,     &t::worst_delay_s, &t::guard_s,
                      &t::paused,      &t::idle_s,        &t::delays};
  }
  /// Of the delayed steps; 0 if there are none.
  double delay_quantile_s(double fraction) const {
    return delays ? std::min(delays->quantile_s(fraction), worst_delay_s) : 0;
  }
  bool operator==(const bubble_use&) const = default;
};

/// Stage to trainer: it is ready (iteration is that of the setup), or has completed another
/// iteration, or has failed.
struct stage_report {
  stage_name name;
  std::uint64_t incarnation = 0;    // of the setup
  std::uint64_t iteration = 0;      // completed, from the job's beginning
  double loss = 0;                  // last stage: mean over its micro-batches
  double squared_norm = 0;          // of the reduced gradients that only this stage has
  double begin_s = 0, end_s = 0;    // from the first task to the end of the update
  double busy_s = 0;                // forward, recompute and backward
  stage_costs measured;             // means of this iteration
  std::uint32_t max_in_flight = 0;  // activations
  std::uint64_t sent_bytes = 0;     // to other datacenters
  std::uint64_t saved = 0;          // iterations in the newest checkpoint of this stage
  reason why;                       // empty text: no error
  std::vector<timed_task> tasks;    // if requested by `trace`
  // When it is ready, of devices that can all-reduce directly: the id of a communicator, created by
  // pipeline 0's; or why this device cannot.
  std::vector<std::uint8_t> group_id;
  reason fallback_reason;
  bool starting = false;  // still being set up: no other field counts
  // The sent_s of the latest setup or run that it received; when that arrived and when this report
  // left, on its host's clock. The time in between is not part of the round trip.
  double request_sent_s = 0, received_s = 0, replied_s = 0;
  std::optional<std::uint64_t> halts_at;  // after a halt: the iteration after which it halts
  std::optional<bubble_use> bubbles{};    // with a guest
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
  // begin_s: where the iteration before ends, if a stage begins this one earlier; else where its
  // first forward begins. end_s: where its last update ends.
  double begin_s = 0, end_s = 0;
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

/// What the devices of one stage did.
struct stage_timeline {
  std::uint32_t pipeline = 0, stage = 0;
  node_index node = 0;
  std::vector<std::uint16_t> devices;  // of the node; several: tensor parallel
  std::vector<timed_task> tasks;       // of the iteration; seconds since it began
  std::vector<double> busy_s;          // since the trainer's start, by timed_task::what

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

/// Trainer to controller, periodically and at the end. The controller keeps the newest report of a
/// lease, and its history.
struct training_report {
  lease_id lease = 0;
  job_id job = 0;
  std::uint64_t sequence = 0;
  std::string schedule, device;
  std::uint32_t stages = 1, pipelines = 1, microbatches = 1;
  std::uint32_t tensor_parallel = 1;
  double tokens_per_s = 0;
  std::vector<std::uint32_t> max_in_flight;  // by stage
  std::uint64_t wan_bytes = 0;
  double wan_utilization = 0;         // of the hops' bandwidth, during iterations
  std::uint64_t saved = 0;            // iterations in the newest complete checkpoint
  std::vector<stage_costs> measured;  // by stage; medians over the latest iterations
  double planned_s = 0;               // time of an iteration
  double lower_bound_s = 0;           // of an iteration; 0: not requested, or not measured yet
  std::vector<std::string> events;    // sentences: resumed, re-planned, ...
  std::vector<iteration_record> iterations;  // the newest
  std::optional<bubble_use> bubbles{};  // if lent: of all iterations of this lease and all stages
  std::optional<iteration_timeline> timeline{};  // none: devices are simulated, or none is complete
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
  std::uint64_t sequence = 0;

  static constexpr auto fields() {
    return std::tuple{&training_report_ack::lease, &training_report_ack::sequence};
  }
  bool operator==(const training_report_ack&) const = default;
};

/// Client to controller: requests the state of a job's training.
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
/// controller's history is bounded: older iterations of long trainings are thinned out evenly. An
/// iteration that is not larger than an earlier one replaces that and all after it: the job has
/// resumed from a checkpoint.
struct training_reply {
  std::uint64_t request = 0;
  training_report report;
  reason why;                  // there is no report
  std::uint64_t position = 0;  // of the newest iteration or event: the next query's `after`

  static constexpr auto fields() {
    using t = training_reply;
    return std::tuple{&t::request, &t::report, &t::why, &t::position};
  }
  bool operator==(const training_reply&) const = default;
};

}  // namespace troupe
