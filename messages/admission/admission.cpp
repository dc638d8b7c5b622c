#include "messages/admission/admission.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include <fmt/format.h>

#include "messages/admission/admission_problems.hpp"
#include "messages/admission/job_keys.hpp"
#include "messages/admission/retries.hpp"
#include "messages/codec/shape.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/tensor_split.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::admission {

// The controller's check of a submitted job, and `troupe check`'s. A client may be any program, so
// nothing here relies on a reader of job files: every number is bounded before anything is computed
// from it, so that neither arithmetic overflows nor a planner runs out of time or memory.
//
// Two kinds of checks: of one key alone, which the tables of job_keys.cpp do, and of keys together,
// which are functions here. The first objection is reported, with the key that a person has to
// change.
namespace {

/// Calls f with every string and number of a value, recursively.
template <class T, class F>
void for_each_leaf(const T& value, F&& f) {
  if constexpr (shape::is_vector<T>) {
    for (const auto& element : value) for_each_leaf(element, f);
  } else if constexpr (shape::is_map<T>) {
    for (const auto& [key, element] : value) for_each_leaf(key, f), for_each_leaf(element, f);
  } else if constexpr (shape::is_optional<T>) {
    if (value) for_each_leaf(*value, f);
  } else if constexpr (shape::record<T>) {
    shape::all_fields(value, [&f](const auto& field) { return for_each_leaf(field, f), true; });
  } else {
    f(value);
  }
}

/// General limits of every string and number.
// NaN and infinities pass every comparison with a bound unnoticed, and a NUL byte would cut a path
// or a variable where the kernel reads it: both are excluded here, once, for all fields.
problem check_leaves(const job_spec& job) {
  std::size_t bytes = 0;
  bool finite = true, nul = false;
  for_each_leaf(job, [&](const auto& leaf) {
    using leaf_type = std::remove_cvref_t<decltype(leaf)>;
    bytes += 1;
    if constexpr (std::is_same_v<leaf_type, std::string>) {
      bytes += leaf.size();
      nul |= leaf.find('\0') != std::string::npos;
    } else if constexpr (std::is_same_v<leaf_type, double>) {
      bytes += sizeof leaf;
      finite &= std::isfinite(leaf);
    }
  });
  if (bytes > max_spec_bytes)
    return fmt::format("the job has {} bytes, expected at most {}", bytes, max_spec_bytes);
  if (nul) return "a string contains a NUL byte";
  if (!finite) return "a number is not finite";
  return {};
}

// Operators are given by users for models that the cost model has no formulas for; a sum of the
// largest allowed is still far below the largest double.
problem check_operators(const model& m) {
  if (m.operators.empty()) return "missing; models of this family are given as operators";
  if (m.operators.size() > max_operators)
    return fmt::format("found {}, expected at most {}", m.operators.size(), max_operators);
  const range bytes{0, 1e15};
  for (const auto& op : m.operators)
    if (auto p = first_of(
            [&] {
              return out_of_range(op.flops, {0, 1e18});
            },
            [&] {
              return out_of_range(op.parameters, {0, 1e13});
            },
            [&] {
              return out_of_range(op.output_bytes, {0, 1e12, !has_program_layers(m)});
            },
            [&] { return out_of_range(op.kept_bytes, bytes); },
            [&] { return out_of_range(op.state_bytes, bytes); }))
      return inside(shown(op.name), p);
  return {};
}

// Planners rely on this order.
problem check_profile(const device_profile& p) {
  if (p.models.size() + p.programs.size() > 1000) return "more than 1000 models";
  for (const auto& m : p.models) {
    const profile_point* before = nullptr;
    for (const auto& at : m.points) {
      if (at.sequence == 0 || at.rows == 0 || at.tensor_parallel == 0)
        return "a point lacks sequence, rows or tensor_parallel";
      const auto place = [](const profile_point& x) {
        return std::tuple{x.tensor_parallel, x.sequence, x.rows};
      };
      if (before && place(*before) >= place(at))
        return "points are not sorted by tensor_parallel, sequence and rows";
      before = &at;
    }
  }
  for (const auto& m : p.programs) {
    const layers_point* before = nullptr;
    for (const auto& at : m.points) {
      if (at.rows == 0) return "a point lacks rows";
      if (before && before->rows >= at.rows) return "points are not sorted by rows";
      if (at.layers.size() != m.points.front().layers.size())
        return "points have different numbers of layers";
      before = &at;
    }
  }
  for (const auto& rate : p.copies.all_reduces)
    if (rate.devices < 2 || !(rate.gbytes_s > 0) || !(rate.small_us > 0))
      return "an all-reduce entry needs at least two devices and a rate";
  return {};
}

problem check_program(const training& t) {
  const auto& p = *t.program;
  if (auto bad = first_invalid_inside(program_keys(), p)) return bad;
  // The package's own program has no file, and always arguments.
  const bool own = p.file.empty() && !p.arguments.empty();
  if (!own && (p.file.empty() || p.file[0] != '/'))
    return fmt::format("program: found '{}', expected an absolute path", shown(p.file));
  if (p.arguments.size() > max_arguments_bytes)
    return fmt::format("arguments: {} bytes, expected at most {}", p.arguments.size(),
                       max_arguments_bytes);
  if (!t.data.empty() || !t.vocabulary.empty())
    return "data, vocabulary: found with program, whose file has its own data";
  return {};
}

// Costs and profiles come from files or from other programs: negative or huge times would turn
// planners' comparisons around.
problem check_train(const training& t) {
  if (t.profile.size() > 1) return "more than one profile";
  if (t.costs.size() > max_operators) return "more costs than stages";
  bool negative = false;
  const auto look = [&](const auto& leaf) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, double>)
      negative |= leaf < 0 || leaf > 1e15;
  };
  for_each_leaf(t.costs, look);
  for_each_leaf(t.profile, look);
  if (negative) return "a cost or measurement is below 0 or above 1e15";
  if (auto p = first_invalid_inside(train_keys(), t)) return p;
  if (t.program) {
    if (auto p = check_program(t)) return p;
  } else if (t.data.empty() && facts_of_device(t.device).computes) {
    return "data: missing; expected a text or token file";
  }
  return t.profile.empty() ? problem{} : inside("profile", check_profile(t.profile.front()));
}

// The number of steps bounds the schedule that the trainer builds and sends to every stage.
problem check_wish(const pipeline_wish& w, bool slots) {
  if (auto p = first_invalid_inside(pipeline_keys(slots), w)) return p;
  if (w.cut.size() > max_operators) return "cut has more stages than any model has pieces";
  const auto steps = std::uint64_t{std::max(w.stages, 1u)} * std::max(w.data_parallel, 1u) *
                     std::max(w.microbatches, 1u);
  if (steps <= max_schedule_steps) return {};
  return fmt::format(
      "{} stages x {} pipelines x {} micro-batches are {} steps per iteration, expected at most {}",
      std::max(w.stages, 1u), std::max(w.data_parallel, 1u), std::max(w.microbatches, 1u), steps,
      max_schedule_steps);
}

/// Limits of a pipeline and its training that depend on the model.
// Sublayers, not layers, are the pieces: a stage may end between the attention and the MLP of a
// layer.
std::optional<objection> check_model_of(const job_spec& job) {
  const auto& m = job.model;
  if (auto p = check_cut(m, job.pipeline.cut, job.pipeline.stages)) return at_key("pipeline", p);
  if (auto p = check_tensor(m, job.pipeline.tensor_parallel)) return at_key("pipeline", p);
  if (job.train && job.train->program && !has_program_layers(m))
    return failure("model",
                   "'{}' is of family {}; a training with a program has the model of family "
                   "layers that troupe describe writes",
                   shown(m.name), m.family);
  if (job.train && !job.train->program && !is_simulated(job.train->device) && m.family != "gpt")
    return failure("train", "'{}' is of family {}; the built-in trainer trains gpt", shown(m.name),
                   m.family);
  if (job.pipeline.groups) return at_key("pipeline", inside("groups", check_groups(job)));
  // Those that divide the sequences have the same samples.
  const auto pipelines =
      std::max(job.pipeline.data_parallel / context_parallel_of(job.pipeline), 1u);
  if (const auto rows = job.pipeline.rows; rows > 0) {
    if (job.pipeline.microbatches || job.microbatches)
      return failure("pipeline", "rows and microbatches exclude each other; give one of them");
    if (job.global_batch % (std::uint64_t{pipelines} * rows) != 0)
      return failure("pipeline",
                     "{} pipelines x micro-batches of {} rows must divide global_batch ({})",
                     pipelines, rows, job.global_batch);
    if (job.global_batch / pipelines / rows > max_pipeline_microbatches)
      return failure("pipeline",
                     "micro-batches of {} rows would be {} per iteration, expected at most {}",
                     rows, job.global_batch / pipelines / rows, max_pipeline_microbatches);
    return {};
  }
  const auto microbatches = std::max(job.pipeline.microbatches, 1u);
  if (job.global_batch % (std::uint64_t{pipelines} * microbatches) != 0)
    return failure("pipeline", "{} pipelines x {} micro-batches must divide global_batch ({})",
                   pipelines, microbatches, job.global_batch);
  return {};
}

/// Consistency of a pipeline job's keys.
std::optional<objection> check_pipeline(const job_spec& job) {
  if (!(job.train || job.slots || job.pipeline != pipeline_wish{})) return {};
  if (!job.program.command.empty())
    return failure(
        "command",
        "command excludes train, slots and pipeline: a program sets up its own pipeline");
  if (job.slots && !job.pipeline.cut.empty())
    return failure("pipeline", "cut applies to a model, and a slots job has none");
  if (job.slots && job.pipeline.groups)
    return failure("pipeline", "groups apply to a model, and a slots job has none");
  if (job.slots && job.pipeline.rows > 0)
    return failure("pipeline", "rows are samples of a batch, and a slots job has none");
  if (job.slots && job.pipeline.tensor_parallel > 1)
    return failure("pipeline", "tensor_parallel applies to a model, and a slots job has none");
  if (job.microbatches && job.pipeline.microbatches &&
      *job.microbatches != job.pipeline.microbatches)
    return failure("microbatches", "found {}, but pipeline.microbatches is {}; give one of them",
                   *job.microbatches, job.pipeline.microbatches);
  return job.slots ? std::nullopt : check_model_of(job);
}

/// Techniques that the cost model knows, so that others' trainings can be described, and that
/// neither the built-in trainer nor programs' stages have.
std::optional<objection> check_estimate_only(const job_spec& job) {
  const auto& w = job.pipeline;
  const auto context = context_parallel_of(w);
  if (job.slots && (w.context_parallel || w.overlap))
    return failure("pipeline", "{} applies to a model, and a slots job has none",
                   w.context_parallel ? "context_parallel" : "overlap");
  if (w.data_parallel % context != 0)
    return failure("pipeline", "context_parallel ({}) must divide data_parallel ({})", context,
                   w.data_parallel);
  const bool is_real =
      facts_of(job).has_processes || (job.train && !is_simulated(job.train->device));
  if (!is_real) return {};
  constexpr auto why =
      "for estimates and train.device: sim only: no training here has it, neither the built-in nor "
      "a program's";
  if (job.memory && is_fp8(*job.memory))
    return failure("precision", "found fp8, expected mixed, bf16, fp32 or tf32: fp8 is {}", why);
  if (w.virtual_stages > 1) return failure("pipeline", "virtual_stages: {}", why);
  if (context > 1) return failure("pipeline", "context_parallel: {}", why);
  if (w.overlap.value_or(false)) return failure("pipeline", "overlap: {}", why);
  return {};
}

/// No device of the built-in trainer has them.
// Estimates and simulations know techniques that the devices of the built-in trainer lack; a job
// that asks them of a real device must fail here and not on its GPUs.
std::optional<objection> check_abilities(const job_spec& job) {
  if (recomputes_layers(job.pipeline) && !job.pipeline.recompute)
    return failure("pipeline", "recompute: found both false and layers, expected one of them");
  if (recomputes_layers(job.pipeline) && job.slots)
    return failure("pipeline",
                   "recompute: found layers, expected true or false: a slots job has no layers");
  if (!job.train || is_simulated(job.train->device)) return {};
  if (recomputes_layers(job.pipeline) && !job.train->program)
    return failure("pipeline",
                   "recompute: found layers, expected true or false: no device of the built-in "
                   "trainer recomputes layer by layer; train.device: sim and programs may");
  if (has_no_matrix(job.kernels))
    return failure("kernels",
                   "found {}, expected eager or fused: the built-in trainer's devices have kernels "
                   "of their own; train.device: sim and programs may",
                   job.kernels);
  return {};
}

problem check_lora(const memory_options& o, const model& m) {
  if (o.lora_rank == 0) return {};
  if (is_given_as_operators(m.family)) return "adapters apply to transformers only";
  return first_invalid_inside(lora_keys(), o);
}

// Declarations replace a prediction. The built-in trainer's memory is computed from what it
// allocates, so a declaration could only be wrong.
std::optional<objection> check_memory(const job_spec& job) {
  if (!job.memory) return {};
  const auto& o = *job.memory;
  if (job.slots || (job.train && !is_simulated(job.train->device)))
    return failure("memory_gb",
                   "the built-in trainer's memory is known; memory_gb, optimizer, precision, zero, "
                   "fsdp, lora, activation_checkpointing and micro_batch apply to programs only");
  return first_of([&] { return first_invalid(memory_keys(), o); },
                  [&] { return at_key("lora", check_lora(o, job.model)); });
}

// A program without a known model runs on exactly the GPUs that its user names; all other work
// leaves the number to the policy.
std::optional<objection> check_words(const job_spec& job) {
  if (job.microbatches && *job.microbatches > job.global_batch && !job.slots)
    return failure("microbatches", "found {}, expected at most global_batch ({})",
                   *job.microbatches, job.global_batch);
  if (job.program.command.empty() && (job.request.exact || job.assumed.model))
    return objection{job.request.exact ? "gpus" : "model",
                     "only of a program the number of GPUs is exact, and the model assumed"};
  if (facts_of(job).exact_gpus && job.limits.max_gpus && job.request.gpus > *job.limits.max_gpus)
    return objection{"gpus", more_than_max_gpus(job)};
  if (!job.program.command.empty() && job.program.command[0].empty())
    return failure("command", "the program's name is empty");
  if (job.program.command.size() > max_words)
    return failure("command", "more than {} words", max_words);
  for (const auto& [name, value] : job.program.environment)
    if (!is_variable(name))
      return failure("environment", "'{}' is not a valid variable name", shown(name));
  return {};
}

// Programs are stopped by signals, trainings by messages: each has its own time to save.
std::optional<objection> check_stops(const job_spec& job) {
  if (facts_of(job).has_processes) return {};
  if (job.program.grace_s)
    return failure("grace_s",
                   "for programs (command:) only; a training has the cluster's preempt_grace_s");
  for (const auto& [key, given] :
       {std::pair{"rank_wait_s", job.program.rank_wait_s.has_value()},
        {"across_datacenters", job.request.across_datacenters.has_value()},
        {"unequal", job.request.unequal.has_value()},
        {"iterations", job.assumed.iterations.has_value()},
        {"global_batch", job.assumed.batch.has_value()}})
    if (given) return failure(key, "for programs (command:) only");
  return {};
}

/// Keys that a decoder cannot have: it runs until it is cancelled, and its model is all that it
/// runs.
std::optional<objection> check_serving(const job_spec& job) {
  if (!job.serve) return {};
  if (auto bad = objection_to(*job.serve))
    return objection{"serve", bad->key.empty() ? std::move(bad->problem)
                                               : fmt::format("{}: {}", bad->key, bad->problem)};
  const auto refused = [](std::string_view key) {
    return objection{std::string{key},
                     "not for a job that serves a model, which runs until it is cancelled"};
  };
  const std::pair<const char*, bool> maps[] = {{"command", !job.program.command.empty()},
                                               {"train", job.train.has_value()},
                                               {"slots", job.slots.has_value()},
                                               {"pipeline", job.pipeline != pipeline_wish{}},
                                               {"environment", !job.program.environment.empty()},
                                               {"memory_gb", job.memory.has_value()},
                                               {"elastic", job.program.elastic.has_value()},
                                               {"retries", job.program.retries.has_value()}};
  for (const auto& [key, given] : maps)
    if (given) return refused(key);
  const auto of_others = job_keys();
  for (const auto& k : of_others)
    if (!k.use.served && is_given(k, job)) return refused(k.name);
  return {};
}

// A simulated training needs no files of the served model: only its shape decides how long a
// prefill takes.
std::optional<objection> check_lending(const job_spec& job) {
  if (!job.pipeline.bubbles) return {};
  if (!job.train && !job.slots)
    return failure("pipeline", "bubbles: only a training has bubbles; add train or slots");
  const bool simulated = job.slots || is_simulated(job.train->device);
  const auto bad = objection_to(*job.pipeline.bubbles, !simulated);
  if (!bad) return {};
  return failure("pipeline", "bubbles: {}: {}", bad->key, bad->problem);
}

std::optional<objection> check_keys(const job_spec& job) {
  if (!is_name(job.name))
    return failure("name",
                   "found '{}', expected a name of at most 64 letters, digits, '.', '_' and '-'",
                   shown(job.name));
  return first_of(
      [&] {
        return at_key("model", job.slots || job.serve ? std::nullopt : check_model(job.model));
      },
      [&] { return first_invalid(job_keys(), job); },
      [&] {
        return at_key("gpus", out_of_range(job.limits.max_gpus.value_or(1), {1, max_gpus}));
      },
      [&] { return at_key("train", job.train ? check_train(*job.train) : std::nullopt); },
      [&] {
        return at_key("slots",
                      job.slots ? first_invalid_inside(slot_keys(), *job.slots) : std::nullopt);
      },
      [&] { return at_key("pipeline", check_wish(job.pipeline, job.slots.has_value())); });
}

}  // namespace

// Names become file names and labels of metrics, and arguments of commands: no slash, no space, no
// leading dash or dot.
bool is_name(std::string_view name) {
  if (name.empty() || name.size() > 64 || name.front() == '-' || name.front() == '.') return false;
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// As POSIX has them; anything else could end up as another variable after a shell.
bool is_variable(std::string_view name) {
  if (name.empty() || name.size() > 256 || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool is_given_as_operators(std::string_view family) {
  return family == "wide-resnet" || family == "moe" || family == "layers";
}

problem check_model(const model& m) {
  if (m.name.size() > 256) return "name: longer than 256 bytes";
  const bool operators = is_given_as_operators(m.family);
  if (auto p = first_invalid_inside(model_keys(operators), m)) return p;
  if (operators) return inside("operators", check_operators(m));
  if (!m.operators.empty()) return fmt::format("operators: not allowed for family {}", m.family);
  if (auto bad = objection_to(m)) return inside(bad->key, bad->problem);
  return {};
}

std::optional<objection> objection_to(const model& m) {
  if (is_given_as_operators(m.family)) return {};
  if (m.family != "llama" && (m.head_width != 0 || m.qkv_bias || m.output_bias || m.mlp_bias))
    return objection{m.head_width != 0 ? "head_width"
                     : m.qkv_bias      ? "qkv_bias"
                     : m.output_bias   ? "output_bias"
                                       : "mlp_bias",
                     fmt::format("only models of the family llama have it, not {}", m.family)};
  if (m.head_width == 0 && m.hidden % m.heads != 0)
    return failure("heads", "{} heads do not divide hidden ({})", m.heads, m.hidden);
  if (m.kv_heads != 0 && m.heads % m.kv_heads != 0)
    return failure("kv_heads", "{} key-value heads do not divide heads ({})", m.kv_heads, m.heads);
  return {};
}

std::string more_than_max_gpus(const job_spec& job) {
  return fmt::format("found {}, expected at most max_gpus ({})", job.request.gpus,
                     *job.limits.max_gpus);
}

// Leaves first: the later checks compute with these numbers.
std::optional<objection> objection_to(const job_spec& job) {
  if (auto p = check_leaves(job)) return objection{"", std::move(*p)};
  return first_of([&] { return check_keys(job); }, [&] { return check_serving(job); },
                  [&] { return check_lending(job); }, [&] { return check_estimate_only(job); },
                  [&] { return check_pipeline(job); }, [&] { return check_abilities(job); },
                  [&] { return check_memory(job); }, [&] { return check_stops(job); },
                  [&] { return objection_to_elastic(job); },
                  [&] { return objection_to_retries(job); }, [&] { return check_words(job); });
}

expected<void> admit(const job_spec& job) {
  const auto bad = objection_to(job);
  if (!bad) return {};
  return refuse(reason::kind::invalid,
                bad->key.empty() ? bad->problem : fmt::format("{}: {}", bad->key, bad->problem));
}

}  // namespace troupe::admission
