#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "messages/address.hpp"
#include "messages/model.hpp"
#include "messages/reason.hpp"
#include "messages/training.hpp"
#include "messages/units.hpp"

// What a trainer, its stages and the gateways between them say.

namespace troupe {

/// One stage of one pipeline of a lease's training.
struct stage_name {
  lease_id lease = 0;
  std::uint32_t pipeline = 0, stage = 0;

  static constexpr auto fields() {
    return std::tuple{&stage_name::lease, &stage_name::pipeline, &stage_name::stage};
  }
  auto operator<=>(const stage_name&) const = default;
};

/// How a tensor crosses the WAN (ATLAS, section 4.3).
struct wan_share {
  std::uint32_t first_pair = 0;   // of the node pairs over whose shares it is scattered,
  std::uint32_t pairs = 1;        // and how many: those of its rank in the DP-cell
  std::uint32_t connections = 1;  // of each pair
  bool in_turn = false;           // one transfer at a time on its cell's hop and direction
  std::uint32_t turn = 0;         // among those that wait the smallest goes first

  static constexpr auto fields() {
    using t = wan_share;
    return std::tuple{&t::first_pair, &t::pairs, &t::connections, &t::in_turn, &t::turn};
  }
  bool operator==(const wan_share&) const = default;
};

/// The header of a tensor between two stages. The frame's body has its bytes; in a simulation the
/// body is empty and takes as long as `bytes` would.
struct tensor {
  enum class kind : std::uint8_t {
    activation,  // to the next stage
    gradient,    // to the stage before
    part,        // data parallel: my gradients of the chunk that you sum
    sum,         // data parallel: the chunk that I summed
    tied_part,   // the head's sum of a tied embedding's gradient, to the first stage
    tied_sum     // and both stages' sum back
  };
  kind what = kind::activation;
  stage_name from;
  std::uint32_t to_pipeline = 0, to_stage = 0;
  std::uint64_t iteration = 0;
  std::uint32_t microbatch = 0;
  std::uint64_t bytes = 0;
  double sent_s = 0;  // by the training's clock
  wan_share share;

  static constexpr auto fields() {
    using t = tensor;
    return std::tuple{&t::what,       &t::from,  &t::to_pipeline, &t::to_stage, &t::iteration,
                      &t::microbatch, &t::bytes, &t::sent_s,      &t::share};
  }
  bool operator==(const tensor&) const = default;
};

/// Stage to stage: what has not come of an iteration's tensors. Whoever sent them sends those again
/// that left long enough ago to have been lost; what it has not sent yet comes in its time.
struct tensor_request {
  tensor::kind what = tensor::kind::activation;
  stage_name from;  // the stage that waits
  std::uint32_t to_pipeline = 0, to_stage = 0;
  std::uint64_t iteration = 0;
  std::vector<std::uint32_t> microbatches;  // of activations and gradients
  double older_than_s = 0;                  // since it left; at the least half a second is meant

  static constexpr auto fields() {
    using t = tensor_request;
    return std::tuple{&t::what,      &t::from,         &t::to_pipeline, &t::to_stage,
                      &t::iteration, &t::microbatches, &t::older_than_s};
  }
  bool operator==(const tensor_request&) const = default;
};

/// Gateway to gateway: a part of a tensor's frame, over one of a node pair's connections. The body
/// is bytes [offset, offset + the body's size) of the tensor's. A flow is: from one stage to one
/// other.
struct stripe {
  std::uint64_t epoch = 0;     // of the flow at the sending gateway; another one begins anew
  std::uint64_t transfer = 0;  // the tensor's number in that, from 0
  std::uint32_t index = 0, count = 1;
  std::uint64_t offset = 0;
  address from = 0, to = 0;  // the tensor's own: two nodes
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
  std::uint32_t turn = 0;  // of the tensor that it sends

  static constexpr auto fields() {
    return std::tuple{&stage_step::what, &stage_step::microbatch, &stage_step::turn};
  }
  bool operator==(const stage_step&) const = default;
};

/// Trainer to node: be this stage. Sent again until it is answered; a stage that is there answers
/// again.
struct stage_setup {
  stage_name name;
  std::uint64_t incarnation = 0;       // of the trainer; a newer one replaces the stage
  std::vector<std::uint16_t> devices;  // of the node; several share the stage: tensor parallel
  std::string backend;                 // sim, cpu, cuda
  troupe::model model;
  training how;
  std::uint32_t first_sublayer = 0, sublayers = 0;  // attention, then MLP: two a layer
  std::uint32_t stages = 1, pipelines = 1, microbatches = 1;
  std::uint32_t rows = 1;             // sequences a micro-batch
  std::vector<stage_step> order;      // of one iteration
  std::vector<address> neighbours;    // of this pipeline, by stage; this stage's own too
  std::vector<address> peers;         // of this stage, by pipeline
  wan_share forward, backward, tied;  // how its tensors cross the WAN; no pairs: they do not
  std::uint64_t first_iteration = 0;  // larger than 0: load the checkpoint of that many
  std::uint64_t iterations = 0;       // when it is through
  stage_costs costs;
  bool trace = false;        // report every task's times
  double sent_s = 0;         // by the trainer's clock
  double emulate_speed = 1;  // of its node's CPU devices

  static constexpr auto fields() {
    using t = stage_setup;
    return std::tuple{&t::name,     &t::incarnation, &t::devices,         &t::backend,
                      &t::model,    &t::how,         &t::first_sublayer,  &t::sublayers,
                      &t::stages,   &t::pipelines,   &t::microbatches,    &t::rows,
                      &t::order,    &t::neighbours,  &t::peers,           &t::forward,
                      &t::backward, &t::tied,        &t::first_iteration, &t::iterations,
                      &t::costs,    &t::trace,       &t::sent_s,          &t::emulate_speed};
  }
  bool operator==(const stage_setup&) const = default;
};

/// Trainer to stage: go on until that many iterations are done, and write a checkpoint after those
/// that the job says. `heard`: iterations whose reports the trainer has; later ones are said again.
struct stage_run {
  stage_name name;
  std::uint64_t until = 0;
  std::uint64_t heard = 0;
  // From here on; empty: as before. Only when nothing runs.
  std::vector<stage_step> order;
  wan_share forward, backward;  // with an order: how its tensors cross
  // What its peers' devices meet by, so that they sum their gradients among themselves, before the
  // first iteration; empty: hosts sum them.
  std::vector<std::uint8_t> group_id{};
  std::uint64_t incarnation = 0;  // of the trainer; a stage of another one ignores it. 0: any
  double sent_s = 0;              // by the trainer's clock, which is the clock of the training:
  double ahead_s = 0;             // so far ahead of it is the clock of the stage's host
  bool halt = false;       // begin no more iterations until `save` says which is the last one,
  std::uint64_t save = 0;  // and to save after it; 0: it says nothing

  static constexpr auto fields() {
    using t = stage_run;
    return std::tuple{&t::name,    &t::until,    &t::heard,    &t::order,
                      &t::forward, &t::backward, &t::group_id, &t::incarnation,
                      &t::sent_s,  &t::ahead_s,  &t::halt,     &t::save};
  }
  bool operator==(const stage_run&) const = default;
};

/// When a stage did something, by the training's clock.
struct timed_task {
  std::uint8_t what = 0;  // stage_step::kind, or 3 reduce, 4 update, 5 checkpoint,
                          // 6 an activation's way here, 7 a gradient's: over the WAN
  std::uint32_t microbatch = 0;
  double begin_s = 0, end_s = 0;

  static constexpr auto fields() {
    using t = timed_task;
    return std::tuple{&t::what, &t::microbatch, &t::begin_s, &t::end_s};
  }
  bool operator==(const timed_task&) const = default;
};

/// Stage to trainer: it is there (iteration 0 of its life), or has done one more iteration, or
/// cannot go on.
struct stage_report {
  stage_name name;
  std::uint64_t incarnation = 0;    // of the setup
  std::uint64_t iteration = 0;      // done so far, from the job's beginning
  double loss = 0;                  // the last stage: mean over its micro-batches
  double squared_norm = 0;          // of the reduced gradients that this stage alone has
  double begin_s = 0, end_s = 0;    // first task to last, the update included
  double busy_s = 0;                // forward, recompute and backward
  stage_costs measured;             // means of this iteration
  std::uint32_t max_in_flight = 0;  // activations
  std::uint64_t sent_bytes = 0;     // to other datacenters
  std::uint64_t saved = 0;          // iterations in the newest checkpoint of this stage
  reason why;                       // empty text: all is well
  std::vector<timed_task> tasks;    // if it was asked to trace
  // When it is there, of devices that can sum among themselves: what pipeline 0's made for them to
  // meet by; or why this one cannot.
  std::vector<std::uint8_t> group_id;
  reason fallback_reason;
  bool starting = false;  // it is being set up still: nothing else here counts
  // The sent_s of the latest setup or run that it has; when that came, and when this left, by its
  // host's clock. What is between the two is not on the way, and so no part of a round trip.
  double asked_s = 0, came_s = 0, left_s = 0;
  std::optional<std::uint64_t> halts_at;  // once it was told to halt: iterations done by then

  static constexpr auto fields() {
    using t = stage_report;
    return std::tuple{&t::name,         &t::incarnation,   &t::iteration,  &t::loss,
                      &t::squared_norm, &t::begin_s,       &t::end_s,      &t::busy_s,
                      &t::measured,     &t::max_in_flight, &t::sent_bytes, &t::saved,
                      &t::why,          &t::tasks,         &t::group_id,   &t::fallback_reason,
                      &t::starting,     &t::asked_s,       &t::came_s,     &t::left_s,
                      &t::halts_at};
  }
  bool operator==(const stage_report&) const = default;
};

/// One iteration of a whole job.
struct iteration_record {
  std::uint64_t iteration = 0;  // from 1
  double loss = 0, gradient_norm = 0;
  double begin_s = 0, end_s = 0;  // the first forward's begin, the last update's end
  double busy_s = 0;              // of all stages

  static constexpr auto fields() {
    using t = iteration_record;
    return std::tuple{&t::iteration, &t::loss,  &t::gradient_norm,
                      &t::begin_s,   &t::end_s, &t::busy_s};
  }
  bool operator==(const iteration_record&) const = default;
};

/// Trainer to controller, now and then and at the end: how the training goes. The controller keeps
/// the newest of a lease and every iteration.
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
  double wan_utilization = 0;         // of the hops' rate, while iterations ran
  std::uint64_t saved = 0;            // iterations in the newest whole checkpoint
  std::vector<stage_costs> measured;  // by stage; medians over the latest iterations
  double planned_s = 0;               // of an iteration
  double lower_bound_s = 0;           // of an iteration; 0: not asked for, or not measured yet
  std::vector<std::string> news;      // sentences for people: resumed, re-planned, what that costs
  std::vector<iteration_record> iterations;  // the newest

  static constexpr auto fields() {
    using t = training_report;
    return std::tuple{&t::lease,           &t::job,          &t::sequence,      &t::schedule,
                      &t::device,          &t::stages,       &t::pipelines,     &t::microbatches,
                      &t::tensor_parallel, &t::tokens_per_s, &t::max_in_flight, &t::wan_bytes,
                      &t::wan_utilization, &t::saved,        &t::measured,      &t::planned_s,
                      &t::lower_bound_s,   &t::news,         &t::iterations};
  }
  bool operator==(const training_report&) const = default;
};

/// Controller to trainer: it has that report, and all before.
struct training_report_ack {
  lease_id lease = 0;
  std::uint64_t sequence = 0;

  static constexpr auto fields() {
    return std::tuple{&training_report_ack::lease, &training_report_ack::sequence};
  }
  bool operator==(const training_report_ack&) const = default;
};

/// Client to controller: how does a job's training go?
struct query_training {
  std::uint64_t request = 0;
  job_id job = 0;
  std::uint64_t after = 0;  // a training_reply's position: only what is newer; 0: all that is kept

  static constexpr auto fields() {
    return std::tuple{&query_training::request, &query_training::job, &query_training::after};
  }
  bool operator==(const query_training&) const = default;
};

/// The newest report, with the iterations and news of every lease that are newer than the query's
/// `after`. The controller's history is bounded: of long trainings the older iterations are
/// thinned out evenly. An iteration that is not larger than one known before replaces that one
/// and all after it: the job has gone on from a checkpoint.
struct training_reply {
  std::uint64_t request = 0;
  training_report report;
  reason why;                  // there is none
  std::uint64_t position = 0;  // of the newest iteration or sentence: the next query's `after`

  static constexpr auto fields() {
    using t = training_reply;
    return std::tuple{&t::request, &t::report, &t::why, &t::position};
  }
  bool operator==(const training_reply&) const = default;
};

}  // namespace troupe
