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

/// Limits that a job's file sets and every policy obeys.
struct job_limits {
  std::optional<double> slo_s;
  std::optional<double> deadline_s;       // after submission
  std::optional<double> budget;           // in the catalogue's currency
  std::optional<double> time_limit_s;     // of running, over all attempts
  std::optional<std::uint32_t> max_gpus;  // none: no bound
  std::string required_gpu_type;          // it runs only on this type; empty: any
  /// Consecutive attempts that may lose a node without progress before the job fails; usually 5.
  std::uint32_t max_restarts = 5;

  TROUPE_FIELDS(job_limits, slo_s, deadline_s, budget, time_limit_s, max_gpus, required_gpu_type,
                max_restarts);
};

/// The GPUs that a job's user asks for. Naming one is never required. `gpus` and `type` are those
/// of a trace's user, for the baselines, unless `exact` is set.
struct gpu_request {
  std::uint32_t gpus = 1;  // usually 1
  std::string type;        // empty: any
  bool exact = false;      // of a program: it gets `gpus` GPUs, no more and no fewer
  /// A program may be spread over datacenters that have a link; none: only if no datacenter is
  /// large enough for it.
  std::optional<bool> across_datacenters{};
  /// A program that takes numbers of GPUs that differ between its nodes; none: it does not.
  std::optional<bool> unequal{};

  TROUPE_FIELDS(gpu_request, gpus, type, exact, across_datacenters, unequal);
};

/// Whether a job may run as one with others.
struct merge_wish {
  bool allowed = true;                    // usually true
  std::vector<std::string> dataset_card;  // keywords
  std::optional<merge_kind> kind{};       // how; none: shared
  std::optional<bool> across_owners{};    // also with jobs of others who agree; none: no

  TROUPE_FIELDS(merge_wish, allowed, dataset_card, kind, across_owners);
};

/// A program of its user's: processes that nodes start.
struct program_work {
  std::vector<std::string> command;  // the program and its arguments; empty: none
  std::map<std::string, std::string> environment;
  std::string working_directory;    // empty: where the node runs
  std::optional<double> grace_s{};  // from SIGTERM to SIGKILL; none: the cluster's
  /// Time for its other parts once one has ended with status 0; none: any.
  std::optional<double> rank_wait_s{};
  /// Policies may stop, resize and move it; none: none of them may.
  std::optional<troupe::elastic> elastic{};
  std::optional<retry_rule> retries{};  // after it has failed; none: it is not repeated

  TROUPE_FIELDS(program_work, command, environment, working_directory, grace_s, rank_wait_s,
                elastic, retries);
};

/// Defaults that stand in for what a program's user did not say.
struct job_assumptions {
  bool model = false;  // job_spec::model is not the program's
  /// 1 iteration, samples of 1: none: by the number, which a user may have given as well.
  std::optional<bool> iterations{}, batch{};

  TROUPE_FIELDS(job_assumptions, model, iterations, batch);
};

/// A job as submitted. Its kind of work follows from `program`, `train`, `slots` and `serve`
/// (work_kind.hpp); none of them: simulated work.
struct job_spec {
  std::string name;
  troupe::model model;
  std::uint32_t global_batch = 1;  // sequences per step
  std::uint64_t iterations = 1;    // steps
  std::optional<std::uint32_t> microbatches;
  pipeline_wish pipeline;
  std::string kernels;                     // eager, fused, flash, sdpa; empty: fused
  std::optional<memory_options> memory{};  // declarations about its training; none: MARP's formula
  std::string objective = "efficient";     // MARP's ranking: efficient, fastest, cheapest
  std::int32_t priority = 0;               // larger first
  job_limits limits;
  gpu_request request;
  merge_wish merging;
  program_work program;
  std::optional<training> train{};    // the built-in trainer
  std::optional<slot_costs> slots{};  // a pipeline study in virtual time, without a model
  std::optional<serving> serve{};     // a decoder of a model
  job_assumptions assumed;

  TROUPE_FIELDS(job_spec, name, model, global_batch, iterations, microbatches, pipeline, kernels,
                memory, objective, priority, limits, request, merging, program, train, slots, serve,
                assumed);

  /// The fields in the order of journals of versions 1 to 3.
  template <class FieldTies = troupe::field_ties>
  auto fields_3() {
    return FieldTies::of(name, model, global_batch, iterations, microbatches, limits.slo_s,
                         limits.deadline_s, limits.budget, priority, request.gpus, request.type,
                         merging.dataset_card, merging.allowed, program.command,
                         program.environment, program.working_directory, objective, train, slots,
                         pipeline, limits.max_gpus, limits.required_gpu_type, limits.max_restarts,
                         memory, kernels, serve, request.exact, assumed.model, program.grace_s,
                         program.rank_wait_s, limits.time_limit_s, merging.kind,
                         merging.across_owners, program.elastic, request.across_datacenters,
                         request.unequal, program.retries, assumed.iterations, assumed.batch);
  }
  static constexpr std::size_t required_3 = 20;
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
