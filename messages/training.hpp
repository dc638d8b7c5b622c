#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "messages/address.hpp"
#include "messages/model.hpp"
#include "messages/profile.hpp"
#include "messages/reason.hpp"
#include "messages/units.hpp"

// What the built-in trainer is asked to do, and what trainer, stages and gateways tell each other.

namespace troupe {

/// What a stage's steps take and what they send: of a simulated device, or measured. A step's time
/// is that from its stage's asking for it to the stage's knowing that it is done.
struct stage_costs {
  double forward_s = 0, recompute_s = 0, backward_s = 0, update_s = 0;
  double gradients_s = 0;  // handing out the gradients' sums, where others want them
  // The quickest tensor's way here from another datacenter; if from two, from the slower one. Of
  // that, what hosts and gateways take besides the link itself.
  double wan_s = 0, handling_s = 0;
  std::uint64_t activation_bytes = 0, gradient_bytes = 0;  // a micro-batch's; all parameters'
  std::uint64_t tied_bytes = 0;  // of these, an embedding that another stage has as its head

  static constexpr auto fields() {
    using t = stage_costs;
    return std::tuple{&t::forward_s,      &t::recompute_s, &t::backward_s, &t::update_s,
                      &t::gradients_s,    &t::wan_s,       &t::handling_s, &t::activation_bytes,
                      &t::gradient_bytes, &t::tied_bytes};
  }
  bool operator==(const stage_costs&) const = default;
};

/// The built-in trainer's job: key `train:` of a job file.
struct training {
  std::string data;        // a text file, or token files; the same path on every node
  std::string vocabulary;  // directory with GPT-2's vocab.json and merges.txt; empty: bytes
  std::uint64_t seed = 1;  // of the initial weights and of the order of the data
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
  std::string schedule;                 // a name of planners/pipeline/schedule.hpp; empty: best
  std::string checkpoint;               // directory; empty: none is written
  std::uint32_t checkpoint_every = 50;  // iterations
  std::string device;                   // sim, cpu, cuda; empty: what the node has
  std::vector<stage_costs> costs;       // of a simulated device, by stage; empty: the cost model's
  std::string timeline;                 // a file for every task's times, of the last iteration
  std::uint32_t replan_every = 20;      // iterations between looks at what was measured; 0: never
  double replan_drift = 0.25;           // re-plan when a step takes so much more or less
  std::vector<device_profile> profile;  // none or one: of its devices, in place of the cluster's

  static constexpr auto fields() {
    using t = training;
    return std::tuple{&t::data,         &t::vocabulary, &t::seed,       &t::learning_rate,
                      &t::weight_decay, &t::schedule,   &t::checkpoint, &t::checkpoint_every,
                      &t::device,       &t::costs,      &t::timeline,   &t::replan_every,
                      &t::replan_drift, &t::profile};
  }
  bool operator==(const training&) const = default;
};

/// A pipeline study's costs, in any unit; key `slots:`. No model is needed then.
struct slot_costs {
  double forward = 1, recompute = 1, backward = 2;
  double lan = 0;  // one transfer inside a datacenter
  double wan = 2;  // one between two, over one node's share

  static constexpr auto fields() {
    using t = slot_costs;
    return std::tuple{&t::forward, &t::recompute, &t::backward, &t::lan, &t::wan};
  }
  bool operator==(const slot_costs&) const = default;
};

/// How the user wants a pipeline to be; key `pipeline:`. 0: the planner decides.
struct pipeline_wish {
  std::uint32_t stages = 0;
  std::uint32_t data_parallel = 0;
  std::uint32_t microbatches = 0;  // a pipeline and iteration
  std::uint32_t stages_per_datacenter = 0;
  std::uint32_t max_in_flight = 0;    // micro-batches whose activations a stage may hold (rule 2)
  std::uint32_t connections = 0;      // between a pair of nodes over the WAN
  std::uint32_t tensor_parallel = 0;  // GPUs of a node that share each stage; 0: one has it
  // Stages hold a micro-batch's input alone, and go forward again before backward; the last one
  // never does. Else they hold all that backward needs.
  bool recompute = true;
  std::uint32_t rows = 0;            // samples a micro-batch, in place of microbatches
  std::vector<std::uint32_t> cut{};  // pieces of each stage; empty: the planner cuts
  static constexpr std::size_t required = 8;

  static constexpr auto fields() {
    using t = pipeline_wish;
    return std::tuple{&t::stages,
                      &t::data_parallel,
                      &t::microbatches,
                      &t::stages_per_datacenter,
                      &t::max_in_flight,
                      &t::connections,
                      &t::tensor_parallel,
                      &t::recompute,
                      &t::rows,
                      &t::cut};
  }
  bool operator==(const pipeline_wish&) const = default;
};

}  // namespace troupe
