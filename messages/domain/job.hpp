#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/elastic.hpp"
#include "messages/domain/end.hpp"
#include "messages/domain/job_union.hpp"
#include "messages/domain/memory.hpp"
#include "messages/domain/model.hpp"
#include "messages/domain/serving.hpp"
#include "messages/domain/training.hpp"

namespace troupe {

/// Kinds of a training's kernels: one kernel for each operation; with elementwise operations fused
/// into fewer; these with attention that never writes its matrix; and such attention with one
/// kernel for each other operation.
inline const std::array<std::string, 4> kernel_kinds{"eager", "fused", "flash", "sdpa"};

/// Do these kernels never write attention's matrix?
inline bool has_no_matrix(const std::string& kernels) {
  return kernels == "flash" || kernels == "sdpa";
}

/// A job as submitted. Naming a GPU is never required. `gpus` and `gpu_type` are requests of a
/// trace's user, used by the baselines; `max_gpus` and `required_gpu_type` are limits that a job
/// file sets and every policy obeys, as it obeys `gpus` where `exact_gpus` is set.
struct job_spec {
  std::string name;
  troupe::model model;
  std::uint32_t global_batch = 1;  // sequences per step
  std::uint64_t iterations = 1;    // steps
  std::optional<std::uint32_t> microbatches;
  std::optional<double> slo_s;
  std::optional<double> deadline_s;  // after submission
  std::optional<double> budget;      // in the catalogue's currency
  std::int32_t priority = 0;         // larger first
  std::uint32_t gpus = 1;            // the requested number, for policies that need one; usually 1
  std::string gpu_type;              // the requested type; empty: any
  std::vector<std::string> dataset_card;  // keywords
  bool merge = true;                      // usually true
  std::vector<std::string> command;       // the program and its arguments; empty: simulated work
  std::map<std::string, std::string> environment;  // for the program
  std::string working_directory;                   // empty: where the node runs
  std::string objective = "efficient";             // MARP's ranking: efficient, fastest, cheapest
  std::optional<training> train;                   // the built-in trainer, in place of a command
  std::optional<slot_costs> slots;  // a pipeline study in virtual time, without a model
  pipeline_wish pipeline;
  std::optional<std::uint32_t> max_gpus;  // upper bound; none: none
  std::string required_gpu_type;          // it runs only on this type; empty: any
  /// Consecutive attempts that may lose a node without progress before the job fails; usually 5.
  std::uint32_t max_restarts = 5;
  std::optional<memory_options> memory;  // declarations about its training; none: MARP's formula
  std::string kernels;                   // eager, fused, flash, sdpa; empty: fused
  std::optional<serving> serve{};        // a decoder of a model, in place of a command
  bool exact_gpus = false;               // of a program: it gets `gpus` GPUs, no more and no fewer
  /// A program's user named no model, and `model` stands in for it.
  bool assumed_model = false;
  std::optional<double> grace_s{};  // of a program: from SIGTERM to SIGKILL; none: the cluster's
  /// Time for a program's other parts once one has ended with status 0; none: any.
  std::optional<double> rank_wait_s{};
  std::optional<double> time_limit_s{};       // of running, over all attempts
  std::optional<merge_kind> merged_as{};      // how it may be merged; none: shared
  std::optional<bool> merge_across_owners{};  // also with jobs of others who agree; none: no
  /// A program that policies may stop, resize and move; none: none of them may.
  std::optional<troupe::elastic> elastic{};
  /// A program may be spread over datacenters that have a link; none: only if no datacenter is
  /// large enough for it.
  std::optional<bool> across_datacenters{};
  /// A program that takes numbers of GPUs that differ between its nodes; none: it does not.
  std::optional<bool> unequal{};
  std::optional<retry_rule> retries{};  // of a program that has failed; none: it is not repeated
  /// A program's user gave no number of iterations (no batch), and 1 stands in for it.
  std::optional<bool> assumed_iterations{}, assumed_batch{};
  static constexpr std::size_t required = 20;

  TROUPE_FIELDS(job_spec, name, model, global_batch, iterations, microbatches, slo_s, deadline_s,
                budget, priority, gpus, gpu_type, dataset_card, merge, command, environment,
                working_directory, objective, train, slots, pipeline, max_gpus, required_gpu_type,
                max_restarts, memory, kernels, serve, exact_gpus, assumed_model, grace_s,
                rank_wait_s, time_limit_s, merged_as, merge_across_owners, elastic,
                across_datacenters, unequal, retries, assumed_iterations, assumed_batch);
};

/// A job and its submission time in seconds since the start.
struct arrival {
  double at_s = 0;
  job_spec spec;

  TROUPE_FIELDS(arrival, at_s, spec);
};

enum class job_state : std::uint8_t { waiting, running, stopping, finished, failed, cancelled };

constexpr bool is_final(job_state s) {
  return s == job_state::finished || s == job_state::failed || s == job_state::cancelled;
}

constexpr const char* to_string(job_state s) {
  constexpr const char* names[] = {"waiting",  "running", "stopping",
                                   "finished", "failed",  "cancelled"};
  return names[static_cast<std::size_t>(s)];
}

}  // namespace troupe
