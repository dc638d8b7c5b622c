#include "messages/admission.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <type_traits>

#include <fmt/format.h>

#include "messages/admission_problems.hpp"
#include "messages/schedules.hpp"
#include "messages/shape.hpp"

namespace troupe::admission {

namespace {

constexpr std::array<std::string_view, 6> families{"gpt", "llama",       "bert",
                                                   "vit", "wide-resnet", "moe"};
constexpr std::array<std::string_view, 3> objectives{"efficient", "fastest", "cheapest"};
constexpr std::array<std::string_view, 4> devices{"", "sim", "cpu", "cuda"};

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

bool has_operators(const model& m) {
  return m.family == "wide-resnet" || m.family == "moe";
}

problem check_operators(const model& m) {
  if (m.operators.empty()) return "missing; models of this family are given as operators";
  if (m.operators.size() > max_operators)
    return fmt::format("found {}, expected at most {}", m.operators.size(), max_operators);
  for (const auto& op : m.operators)
    if (auto p = first_of([&] { return out_of_range(op.flops, 0, 1e18); },
                          [&] { return out_of_range(op.parameters, 0, 1e13); },
                          [&] { return not_above_0(op.output_bytes, 1e12); }))
      return inside(shown(op.name), p);
  return {};
}

problem check_sizes(const model& m) {
  const std::uint32_t least = has_operators(m) ? 0 : 1;
  const auto size = [&](const char* name, std::uint32_t found, std::uint32_t low,
                        std::uint32_t high) {
    return [=] { return inside(name, out_of_range(found, low, high)); };
  };
  return first_of(
      size("hidden", m.hidden, least, max_hidden), size("layers", m.layers, least, max_layers),
      size("heads", m.heads, least, max_heads), size("kv_heads", m.kv_heads, 0, max_heads),
      size("intermediate", m.intermediate, 0, max_intermediate),
      size("sequence", m.sequence, least, max_sequence),
      size("vocabulary", m.vocabulary, least, max_vocabulary));
}

problem check_profile(const device_profile& p) {
  if (p.models.size() > 1000) return "more than 1000 models";
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
  for (const auto& rate : p.copies.all_reduces)
    if (rate.devices < 2 || !(rate.gbytes_s > 0) || !(rate.small_us > 0))
      return "an all-reduce entry needs at least two devices and a rate";
  return {};
}

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
  if (auto p = first_of(
          [&] { return inside("device", not_one_of(t.device, devices)); },
          [&] { return inside("learning_rate", not_above_0(t.learning_rate, 100)); },
          [&] { return inside("weight_decay", out_of_range(t.weight_decay, 0, 1)); },
          [&] { return inside("replan_drift", not_above_0(t.replan_drift, 100)); },
          [&]() -> problem {
            if (t.schedule.empty()) return {};
            return inside("schedule", not_one_of(t.schedule, schedule_names));
          },
          [&] {
            return inside("checkpoint_every", out_of_range(t.checkpoint_every, 1, 1'000'000'000));
          },
          [&] { return inside("replan_every", out_of_range(t.replan_every, 0, 1'000'000'000)); }))
    return p;
  if (t.data.empty() && (t.device == "cpu" || t.device == "cuda"))
    return "data: missing; expected a text or token file";
  return t.profile.empty() ? problem{} : inside("profile", check_profile(t.profile.front()));
}

problem check_slots(const slot_costs& c) {
  const double prefill = c.prefill_per_1k.value_or(slot_costs::default_prefill_per_1k);
  return first_of([&] { return inside("forward", not_above_0(c.forward, 1e9)); },
                  [&] { return inside("backward", not_above_0(c.backward, 1e9)); },
                  [&] { return inside("recompute", out_of_range(c.recompute, 0, 1e9)); },
                  [&] { return inside("lan", out_of_range(c.lan, 0, 1e9)); },
                  [&] { return inside("wan", out_of_range(c.wan, 0, 1e9)); },
                  [&] { return inside("prefill_per_1k", not_above_0(prefill, 1e9)); });
}

problem check_wish(const pipeline_wish& w, bool slots) {
  const std::uint32_t least = slots ? 1 : 0;
  const auto size = [](const char* name, std::uint32_t found, std::uint32_t low,
                       std::uint32_t high) {
    return [=] { return inside(name, out_of_range(found, low, high)); };
  };
  if (auto p = first_of(size("stages", w.stages, least, max_stages),
                        size("data_parallel", w.data_parallel, 0, max_pipelines),
                        size("microbatches", w.microbatches, least, max_pipeline_microbatches),
                        size("stages_per_datacenter", w.stages_per_datacenter, 0, max_stages),
                        size("max_in_flight", w.max_in_flight, 0, max_pipeline_microbatches),
                        size("connections", w.connections, 0, max_connections),
                        size("tensor_parallel", w.tensor_parallel, 0, max_tensor_parallel),
                        size("rows", w.rows, 0, max_batch),
                        size("virtual_stages", w.virtual_stages, 0, 1000)))
    return p;
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
std::optional<objection> check_model_of(const job_spec& job) {
  const auto& m = job.model;
  const auto parts = m.operators.empty() ? 2 * std::size_t{m.layers} : m.operators.size();
  if (job.pipeline.stages > parts)
    return objection{
        "pipeline",
        fmt::format("{} stages are more than the {} {} of '{}'", job.pipeline.stages, parts,
                    m.operators.empty() ? "sublayers" : "operators", shown(m.name))};
  if (const auto& cut = job.pipeline.cut; !cut.empty()) {
    const auto what = m.operators.empty() ? "sublayers (two per layer)" : "operators";
    const auto sum = std::accumulate(cut.begin(), cut.end(), std::uint64_t{0});
    if (cut.size() != job.pipeline.stages)
      return objection{"pipeline", fmt::format("cut has {} stages, but stages is {}", cut.size(),
                                               job.pipeline.stages)};
    if (sum != parts)
      return objection{"pipeline", fmt::format("cut covers {} {} of the {} of '{}'", sum, what,
                                               parts, shown(m.name))};
    if (std::ranges::find(cut, 0u) != cut.end())
      return objection{"pipeline", fmt::format("a stage of cut has no {}", what)};
  }
  if (const auto t = job.pipeline.tensor_parallel; t > 1) {
    const auto inner = m.intermediate ? m.intermediate : 4 * std::uint64_t{m.hidden};
    if (!m.operators.empty() || m.family != "gpt")
      return objection{"pipeline",
                       fmt::format("tensor_parallel supports models of family gpt only, not '{}'",
                                   shown(m.name))};
    if (m.heads % t != 0 || inner % t != 0)
      return objection{"pipeline", fmt::format("tensor_parallel ({}) must divide both the head "
                                               "count ({}) and the MLP width ({}) of '{}'",
                                               t, m.heads, inner, shown(m.name))};
  }
  if (job.train && job.train->device != "sim" && m.family != "gpt")
    return objection{"train", fmt::format("'{}' is of family {}; the built-in trainer trains gpt",
                                          shown(m.name), m.family)};
  const auto pipelines = std::max(job.pipeline.data_parallel, 1u);
  if (const auto rows = job.pipeline.rows; rows > 0) {
    if (job.pipeline.microbatches || job.microbatches)
      return objection{"pipeline", "rows and microbatches exclude each other; give one of them"};
    if (job.global_batch % (std::uint64_t{pipelines} * rows) != 0)
      return objection{
          "pipeline",
          fmt::format("{} pipelines x micro-batches of {} rows must divide global_batch ({})",
                      pipelines, rows, job.global_batch)};
    if (job.global_batch / pipelines / rows > max_pipeline_microbatches)
      return objection{
          "pipeline",
          fmt::format("micro-batches of {} rows would be {} per iteration, expected at most {}",
                      rows, job.global_batch / pipelines / rows, max_pipeline_microbatches)};
    return {};
  }
  const auto microbatches = std::max(job.pipeline.microbatches, 1u);
  if (job.global_batch % (std::uint64_t{pipelines} * microbatches) != 0)
    return objection{"pipeline",
                     fmt::format("{} pipelines x {} micro-batches must divide global_batch ({})",
                                 pipelines, microbatches, job.global_batch)};
  return {};
}

/// Consistency of a pipeline job's keys.
std::optional<objection> check_pipeline(const job_spec& job) {
  if (!(job.train || job.slots || job.pipeline != pipeline_wish{})) return {};
  if (!job.command.empty())
    return objection{
        "command",
        "command excludes train, slots and pipeline: a program sets up its own pipeline"};
  if (job.slots && !job.pipeline.cut.empty())
    return objection{"pipeline", "cut applies to a model, and a slots job has none"};
  if (job.slots && job.pipeline.rows > 0)
    return objection{"pipeline", "rows are samples of a batch, and a slots job has none"};
  if (job.slots && job.pipeline.tensor_parallel > 1)
    return objection{"pipeline", "tensor_parallel applies to a model, and a slots job has none"};
  if (job.microbatches && job.pipeline.microbatches &&
      *job.microbatches != job.pipeline.microbatches)
    return objection{"microbatches",
                     fmt::format("found {}, but pipeline.microbatches is {}; give one of them",
                                 *job.microbatches, job.pipeline.microbatches)};
  return job.slots ? std::nullopt : check_model_of(job);
}

std::optional<objection> check_memory(const job_spec& job) {
  if (!job.memory) return {};
  const auto& o = *job.memory;
  if (job.train || job.slots || job.pipeline != pipeline_wish{})
    return objection{
        "memory_gb",
        "the built-in trainer's memory is known; memory_gb, optimizer, precision, zero, fsdp, "
        "lora, activation_checkpointing and micro_batch apply to programs only"};
  const auto word = [&](const char* name, const std::string& found, const auto& known) {
    return at_key(name, found.empty() ? problem{} : not_one_of(found, known));
  };
  return first_of([&] { return at_key("memory_gb", out_of_range(o.gb, 0, 1e6)); },
                  [&] { return word("optimizer", o.optimizer, optimizers); },
                  [&] { return word("precision", o.precision, precisions); },
                  [&] { return word("activation_checkpointing", o.checkpointing, checkpointings); },
                  [&] { return at_key("zero", out_of_range(o.zero, 0, 3)); },
                  [&] { return at_key("lora", out_of_range(o.lora_rank, 0, max_lora_rank)); },
                  [&] { return word("lora", o.lora_targets, lora_target_names); },
                  [&] { return at_key("micro_batch", out_of_range(o.micro_batch, 0, max_batch)); },
                  [&] {
                    return at_key("lora", o.lora_rank > 0 && has_operators(job.model)
                                              ? problem{"adapters apply to transformers only"}
                                              : problem{});
                  });
}

std::optional<objection> check_words(const job_spec& job) {
  if (job.microbatches && *job.microbatches > job.global_batch && !job.slots)
    return objection{"microbatches", fmt::format("found {}, expected at most global_batch ({})",
                                                 *job.microbatches, job.global_batch)};
  if (!job.command.empty() && job.command[0].empty())
    return objection{"command", "the program's name is empty"};
  if (job.command.size() > max_words)
    return objection{"command", fmt::format("more than {} words", max_words)};
  for (const auto& [name, value] : job.environment)
    if (!is_variable(name))
      return objection{"environment",
                       fmt::format("'{}' is not a valid variable name", shown(name))};
  return {};
}

/// What a decoder cannot have: it runs until it is cancelled, and what it runs is its model.
std::optional<objection> check_serving(const job_spec& job) {
  if (!job.serve) return {};
  if (auto bad = objection_to(*job.serve))
    return objection{"serve", bad->key.empty() ? std::move(bad->problem)
                                               : fmt::format("{}: {}", bad->key, bad->problem)};
  const std::pair<const char*, bool> others[] = {
      {"command", !job.command.empty()},
      {"train", job.train.has_value()},
      {"slots", job.slots.has_value()},
      {"pipeline", job.pipeline != pipeline_wish{}},
      {"environment", !job.environment.empty()},
      {"working_directory", !job.working_directory.empty()},
      {"global_batch", job.global_batch != 1},
      {"iterations", job.iterations != 1},
      {"microbatches", job.microbatches.has_value()},
      {"slo_s", job.slo_s.has_value()},
      {"deadline_s", job.deadline_s.has_value()},
      {"budget", job.budget.has_value()},
      {"memory_gb", job.memory.has_value()},
      {"kernels", !job.kernels.empty()}};
  for (const auto& [key, given] : others)
    if (given)
      return objection{key, "not for a job that serves a model, which runs until it is cancelled"};
  return {};
}

std::optional<objection> check_lending(const job_spec& job) {
  if (!job.pipeline.bubbles) return {};
  if (!job.train && !job.slots)
    return objection{"pipeline", "bubbles: only a training has bubbles; add train or slots"};
  const bool simulated = job.slots || job.train->device == "sim";
  const auto bad = objection_to(*job.pipeline.bubbles, !simulated);
  if (!bad) return {};
  return objection{"pipeline", fmt::format("bubbles: {}: {}", bad->key, bad->problem)};
}

std::optional<objection> check_keys(const job_spec& job) {
  const auto positive = [](const std::optional<double>& x) {
    return x ? not_above_0(*x, max_seconds) : std::nullopt;
  };
  if (!is_name(job.name))
    return objection{"name", fmt::format("found '{}', expected a name of at most 64 letters, "
                                         "digits, '.', '_' and '-'",
                                         shown(job.name))};
  return first_of(
      [&] {
        return at_key("model", job.slots || job.serve ? std::nullopt : check_model(job.model));
      },
      [&] { return at_key("global_batch", out_of_range(job.global_batch, 1, max_batch)); },
      [&] { return at_key("iterations", out_of_range(job.iterations, 1, max_iterations)); },
      [&] {
        return at_key("microbatches", out_of_range(job.microbatches.value_or(1), 1, max_batch));
      },
      [&] { return at_key("slo_s", positive(job.slo_s)); },
      [&] { return at_key("deadline_s", positive(job.deadline_s)); },
      [&] { return at_key("budget", positive(job.budget)); },
      [&] { return at_key("priority", out_of_range(job.priority, -max_priority, max_priority)); },
      [&] { return at_key("gpus", out_of_range(job.gpus, 1, max_gpus)); },
      [&] { return at_key("gpus", out_of_range(job.max_gpus.value_or(1), 1, max_gpus)); },
      [&] { return at_key("max_restarts", out_of_range(job.max_restarts, 0, max_restarts)); },
      [&] { return at_key("objective", not_one_of(job.objective, objectives)); },
      [&] {
        return at_key("kernels",
                      job.kernels.empty() ? problem{} : not_one_of(job.kernels, kernel_kinds));
      },
      [&] { return at_key("train", job.train ? check_train(*job.train) : std::nullopt); },
      [&] { return at_key("slots", job.slots ? check_slots(*job.slots) : std::nullopt); },
      [&] { return at_key("pipeline", check_wish(job.pipeline, job.slots.has_value())); });
}

}  // namespace

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > 64 || name.front() == '-' || name.front() == '.') return false;
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

bool is_variable(std::string_view name) {
  if (name.empty() || name.size() > 256 || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::string shown(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string out;
  for (const char c : text.substr(0, longest)) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u == 0x7f)
      out += fmt::format("\\x{:02x}", u);
    else
      out += c;
  }
  // Do not cut a UTF-8 character.
  if (text.size() > longest) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
    out += "...";
  }
  return out;
}

problem check_model(const model& m) {
  if (m.name.size() > 256) return "name: longer than 256 bytes";
  if (auto p = not_one_of(m.family, families)) return inside("family", p);
  if (auto p = check_sizes(m)) return p;
  if (has_operators(m)) return inside("operators", check_operators(m));
  if (!m.operators.empty()) return fmt::format("operators: not allowed for family {}", m.family);
  if (auto bad = objection_to(m)) return inside(bad->key, bad->problem);
  return {};
}

std::optional<objection> objection_to(const model& m) {
  if (has_operators(m)) return {};
  if (m.hidden % m.heads != 0)
    return objection{"heads", fmt::format("{} heads do not divide hidden ({})", m.heads, m.hidden)};
  if (m.kv_heads != 0 && m.heads % m.kv_heads != 0)
    return objection{"kv_heads", fmt::format("{} key-value heads do not divide heads ({})",
                                             m.kv_heads, m.heads)};
  return {};
}

std::optional<objection> objection_to(const job_spec& job) {
  if (auto p = check_leaves(job)) return objection{"", std::move(*p)};
  return first_of([&] { return check_keys(job); }, [&] { return check_serving(job); },
                  [&] { return check_lending(job); }, [&] { return check_pipeline(job); },
                  [&] { return check_memory(job); }, [&] { return check_words(job); });
}

expected<void> admit(const job_spec& job) {
  const auto bad = objection_to(job);
  if (!bad) return {};
  return refuse(reason::kind::invalid,
                bad->key.empty() ? bad->problem : fmt::format("{}: {}", bad->key, bad->problem));
}

}  // namespace troupe::admission
