#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/reason.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/layer_file.hpp"
#include "messages/domain/model.hpp"
#include "messages/domain/profile.hpp"
#include "messages/domain/serving.hpp"

// A training's configuration; messages between trainer and stages are in wire/stage.hpp.

namespace troupe {

/// Step times and tensor sizes of a stage: of a simulated device, or measured, from submitting a
/// step to its completion.
struct stage_costs {
  double forward_s = 0, recompute_s = 0, backward_s = 0, update_s = 0;
  double gradients_s = 0;  // copying gradients to the host, if hosts all-reduce
  /// Transfer time of the fastest tensor from another datacenter; if from two, of the slower one.
  double wan_s = 0;
  double handling_s = 0;               // the part of it that hosts and gateways add to the link
  std::uint64_t activation_bytes = 0;  // of a micro-batch
  std::uint64_t gradient_bytes = 0;    // of all the stage's parameters
  std::uint64_t tied_bytes =
      0;  // part of gradient_bytes: an embedding that is another stage's head
  /// The norms of its gradients, which stages add up before updates that need them; 0: they are
  /// part of update_s. None: no update needs them.
  std::optional<double> norms_s{};
  static constexpr std::size_t required = 10;

  TROUPE_FIELDS(stage_costs, forward_s, recompute_s, backward_s, update_s, gradients_s, wan_s,
                handling_s, activation_bytes, gradient_bytes, tied_bytes, norms_s);
};

/// A training's job: key `train:` of a job file.
struct training {
  std::string data;        // a text file, or token files; the same path on every node
  std::string vocabulary;  // directory with GPT-2's vocab.json and merges.txt; empty: bytes
  std::uint64_t seed = 1;  // of the initial weights and the order of the data
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
  std::string schedule;                 // a name of planners/schedule/schedule.hpp; empty: best
  std::string checkpoint;               // directory; empty: none is written
  std::uint32_t checkpoint_every = 50;  // iterations
  std::string device;                   // `sim`, `cpu`, `cuda`; empty: what the node has
  std::vector<stage_costs> costs;  // of a simulated device, by stage; empty: from the cost model
  std::string timeline;            // a file for the times of every task of the last iteration
  /// Iterations between comparisons of measurements and plan; 0: never.
  std::uint32_t replan_every = 20;
  double replan_drift = 0.25;  // re-plan when a step's time differs by this fraction
  /// None or one: profile of its devices, instead of the cluster's.
  std::vector<device_profile> profile;
  std::uint32_t keep_checkpoints = 0;  // the newest that stay when a newer one is complete; 0: all
  /// Its layers in place of the built-in GPT-2; then it has its own data and optimizer.
  std::optional<layer_file> program{};
  /// `heal`: it goes on without lost stages, where a peer has their state; `restart`: it starts
  /// again from its checkpoint. None: heal.
  std::optional<std::string> on_loss{};
  std::optional<double> target_loss{};  // it ends early when a held-out loss is at most that
  /// Checkpoints after each multiple of this many iterations stay beside the newest. None: no
  /// other.
  std::optional<std::uint32_t> keep_every{};
  static constexpr std::size_t required = 14;

  TROUPE_FIELDS(training, data, vocabulary, seed, learning_rate, weight_decay, schedule, checkpoint,
                checkpoint_every, device, costs, timeline, replan_every, replan_drift, profile,
                keep_checkpoints, program, on_loss, target_loss, keep_every);
};

/// Whether the devices, of this kind, of a stage and its peers may all-reduce gradients without the
/// hosts.
inline bool sums_on_devices(const training& t, std::string_view device) {
  return t.program ? t.program->gradients == "torch" : facts_of_device(device).sums_on_devices;
}

/// Costs of a pipeline study without a model, in any unit; key `slots:`.
struct slot_costs {
  double forward = 1, recompute = 1, backward = 2;
  double lan = 0;  // one transfer inside a datacenter
  double wan = 2;  // one transfer between datacenters, over one node's bandwidth
  /// Cost of a thousand tokens, if its bubbles are lent; none: 0.25.
  std::optional<double> prefill_per_1k{};
  static constexpr double default_prefill_per_1k = 0.25;
  static constexpr std::size_t required = 5;

  TROUPE_FIELDS(slot_costs, forward, recompute, backward, lan, wan, prefill_per_1k);
};

/// A stage of pipelines that a job's user chose, by the names of its cluster.
struct chosen_stage {
  std::string gpu;
  std::uint32_t pieces = 0;                        // consecutive ones of the model
  std::optional<std::uint32_t> tensor_parallel{};  // GPUs of a node that share it; none: one
  std::optional<std::string> datacenter{};         // none: the cluster has one
  std::optional<std::uint32_t> held{};             // micro-batches in flight at most
  static constexpr std::size_t required = 2;

  TROUPE_FIELDS(chosen_stage, gpu, pieces, tensor_parallel, datacenter, held);
};

/// Equal pipelines that a job's user chose.
struct chosen_group {
  std::uint32_t pipelines = 1;
  std::uint32_t microbatches = 1;  // of each of them in an iteration
  std::vector<chosen_stage> stages;

  TROUPE_FIELDS(chosen_group, pipelines, microbatches, stages);
};

/// Requested properties of the pipelines; key `pipeline:`. 0: the planner decides.
struct pipeline_wish {
  std::uint32_t stages = 0;
  std::uint32_t data_parallel = 0;
  std::uint32_t microbatches = 0;  // of a pipeline in an iteration
  std::uint32_t stages_per_datacenter = 0;
  std::uint32_t max_in_flight = 0;    // micro-batches in flight per stage (rule 2)
  std::uint32_t connections = 0;      // between a pair of nodes over the WAN
  std::uint32_t tensor_parallel = 0;  // GPUs of a node that share each stage; 0: one
  // Stages keep only a micro-batch's input and repeat its forward before the backward, except the
  // last one. Otherwise they keep all activations.
  bool recompute = true;
  std::uint32_t rows = 0;            // samples per micro-batch, instead of microbatches
  std::vector<std::uint32_t> cut{};  // pieces of each stage; empty: cut by the planner
  // Parts of the model per stage, interleaved (Narayanan et al., section 2.2); 0: one. For
  // estimates: the built-in trainer's stages have one.
  std::uint32_t virtual_stages = 0;
  std::optional<bubble_lending> bubbles{};  // none: they are not lent
  // With `recompute`: every stage keeps each layer's input, and its backward repeats the forward of
  // one layer after the other. For estimates, studies and programs. None: not so.
  std::optional<bool> recompute_layers{};
  // Pipelines that divide each sequence among them (context parallelism); none: one. For estimates.
  std::optional<std::uint32_t> context_parallel{};
  // Collectives of GPUs that share a stage, messages between stages and sums of gradients run
  // beside the work that does not need them. For estimates; none: each waits for the one before.
  std::optional<bool> overlap{};
  // All pipelines, with their shares of the batch and their places; none: the planner decides.
  std::optional<std::vector<chosen_group>> groups{};
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(pipeline_wish, stages, data_parallel, microbatches, stages_per_datacenter,
                max_in_flight, connections, tensor_parallel, recompute, rows, cut, virtual_stages,
                bubbles, recompute_layers, context_parallel, overlap, groups);
};

/// Micro-batches of an iteration over all pipelines of the groups.
inline std::uint64_t microbatches_of(const std::vector<chosen_group>& groups) {
  std::uint64_t n = 0;
  for (const auto& g : groups) n += std::uint64_t{g.pipelines} * g.microbatches;
  return n;
}

/// Pipelines among which each sequence is divided; 1: it is not.
inline std::uint32_t context_parallel_of(const pipeline_wish& w) {
  return w.context_parallel.value_or(1);
}

inline bool recomputes_layers(const pipeline_wish& w) {
  return w.recompute_layers.value_or(false);
}

}  // namespace troupe
