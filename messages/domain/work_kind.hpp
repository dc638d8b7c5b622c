#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "messages/domain/device_kind.hpp"
#include "messages/domain/job.hpp"

// The kinds of work of jobs, and the facts about each that planning, control and clients depend on.
// Code outside of files' formats and admission asks for a fact and not for a kind, so that a new
// kind is a row of work_kinds, a line of kind_of(), its keys, and the node's start of it.

namespace troupe {

/// An index of work_kinds.
enum class work_kind : std::uint8_t {
  simulated,        // iterations of a model, of which nothing runs
  pipelines,        // the same, and its file asks for properties of its pipelines
  study,            // of pipelines in slots, without a model
  training,         // by the built-in trainer: its own model, or layers of a program
  program,          // its user's own
  elastic_program,  // the same, which policies may stop, resize and move within its limits
  replayed,         // of a trace that gives its times; policies are shown a program
  decoder           // serves a model
};

/// How it is stopped.
enum class stop_way : std::uint8_t {
  at_once,  // there is nothing to save
  halt,     // it stays ordered while it saves, for the cluster's preempt_grace_s
  signal    // its nodes send SIGTERM, and SIGKILL after the grace that is its own
};

/// A member's default is as most kinds have it.
struct work_facts {
  std::string_view name;

  // -- how it runs
  bool simulated = false;      // nothing runs: it takes its expected time
  bool has_processes = false;  // of its user: ports, ranks, an exit status, output
  bool serves = false;         // a model: it answers requests, and has no iterations
  bool has_stages = false;     // of the built-in trainer, which reports checkpoints
  bool has_end = true;         // by itself; otherwise it does no iterations, until it is cancelled
  bool has_known_length = true;         // iterations after which it ends
  bool restarts_after_failure = false;  // it has no result that the failure would be
  stop_way stops_by = stop_way::at_once;
  /// An attempt that ran so long is progress, whether it has saved or not: the next loss of a node,
  /// or failure at its start, counts as the first.
  double proof_s = std::numeric_limits<double>::infinity();

  // -- what policies may do with it
  bool has_model = true;         // that can be cut, and whose memory and times follow from it
  bool pipelines = false;        // Algorithm 1, or a policy instead of it, plans its pipelines
  bool brings_layout = false;    // it makes its own stages: only GPUs and their numbers are planned
  bool malleable = false;        // a fine-tuning: policies choose its batches and its split
  bool mergeable = false;        // into a union with others
  bool stoppable = true;         // policies may stop or move it while it runs
  bool resumable = true;         // it goes on from what it has saved
  bool elastic = false;          // within limits that its file gives; its attempts are measured
  bool exact_gpus = false;       // on exactly `gpus` GPUs, as many of each of its nodes
  bool resizable = true;         // another attempt may have another number of GPUs
  bool has_known_memory = true;  // predicted, or given by its user
  bool on_engine = false;        // the GPU engine's memory, to the byte
  bool keeps_to_datacenter = false;  // unless its file says otherwise, or none is large enough
  bool gets_reservation = false;     // nodes are kept for it while it waits
  bool has_own_rules = false;        // a wrapper of policies, or a rule of theirs, is about it
};

/// By kind. What depends on a job's own options is as for a job without them.
inline constexpr auto work_kinds = std::to_array<work_facts>({
    {.name = "simulated work", .simulated = true, .malleable = true, .mergeable = true},
    {.name = "simulated pipelines", .simulated = true, .pipelines = true, .mergeable = true},
    {.name = "study",
     .has_stages = true,
     .stops_by = stop_way::halt,
     .has_model = false,
     .pipelines = true,
     .resumable = false},
    {.name = "training", .has_stages = true, .stops_by = stop_way::halt, .pipelines = true},
    {.name = "program",
     .has_processes = true,
     .stops_by = stop_way::signal,
     .proof_s = 600,
     .brings_layout = true,
     .stoppable = false,
     .resumable = false,
     .resizable = false,
     .keeps_to_datacenter = true,
     .gets_reservation = true,
     .has_own_rules = true},
    {.name = "elastic program",
     .has_processes = true,
     .stops_by = stop_way::signal,
     .proof_s = 600,
     .brings_layout = true,
     .elastic = true,
     .keeps_to_datacenter = true,
     .gets_reservation = true,
     .has_own_rules = true},
    {.name = "replayed job",
     .has_processes = true,
     .stops_by = stop_way::signal,
     .proof_s = 600,
     .brings_layout = true,
     .resizable = false,
     .keeps_to_datacenter = true,
     .has_own_rules = true},
    {.name = "decoder",
     .serves = true,
     .has_end = false,
     .has_known_length = false,
     .restarts_after_failure = true,
     .proof_s = 60,
     .has_own_rules = true},
});

constexpr const work_facts& facts_of(work_kind k) {
  return work_kinds[static_cast<std::size_t>(k)];
}
static_assert(work_kinds.size() == static_cast<std::size_t>(work_kind::decoder) + 1 &&
              facts_of(work_kind::program).name == "program" &&
              facts_of(work_kind::decoder).name == "decoder");

/// The command of a replayed job, as policies are shown it. It has a zero byte, which no file and
/// no command line can have.
inline constexpr std::string_view replayed_word{"\0replayed", 9};

/// No wish; one for all questions, since making it takes longer than comparing it.
inline constinit const pipeline_wish no_wish{};

/// A job that admission accepts is of one kind. Estimates describe programs by a training's
/// options, too: a command decides.
inline work_kind kind_of(const job_spec& s) {
  if (s.serve) return work_kind::decoder;
  if (!s.program.command.empty()) {
    if (s.program.elastic) return work_kind::elastic_program;
    const bool replayed =
        s.program.command.size() == 1 && s.program.command.front() == replayed_word;
    return replayed ? work_kind::replayed : work_kind::program;
  }
  if (s.slots) return work_kind::study;
  if (s.train) return work_kind::training;
  return s.pipeline == no_wish ? work_kind::simulated : work_kind::pipelines;
}

/// The facts of its kind, as the job's own options change them.
inline work_facts facts_of(const job_spec& s) {
  auto f = facts_of(kind_of(s));
  if (f.has_processes) {
    f.pipelines = s.train || s.slots || s.pipeline != no_wish;
    // A program without a number of iterations may end at any time.
    f.has_known_length = s.iterations > 1;
    // The user gave the number of GPUs, or no model by which another could be chosen.
    f.exact_gpus =
        (s.request.exact || s.assumed.model) && !(f.elastic && !s.program.elastic->same_gpus);
    f.resizable = f.elastic && !f.exact_gpus;
  }
  // Nothing is known of a program that names a number of GPUs alone.
  f.has_known_memory = !s.assumed.model || !s.request.exact || (s.memory && s.memory->gb > 0);
  if (s.train) {
    const auto device = facts_of_device(s.train->device);
    f.on_engine = device.has_engine_memory && !s.slots && s.model.operators.empty();
    if (f.has_stages && f.has_model) f.resumable = !s.train->checkpoint.empty() || device.simulated;
  }
  return f;
}

}  // namespace troupe
