#include <fmt/format.h>

#include <optional>
#include <system_error>
#include <utility>

#include "configs/load.hpp"
#include "configs/model_reader.hpp"
#include "configs/profile_reader.hpp"
#include "configs/training_reader.hpp"
#include "messages/schedules.hpp"

namespace troupe::configs {

namespace fs = std::filesystem;

namespace {

fs::path absolute_in(const fs::path& named, const fs::path& directory) {
  std::error_code error;
  const auto whole = fs::absolute(directory / named, error);
  return (error ? directory / named : whole).lexically_normal();
}

/// Where a file that the trainer reads is.
std::string found_path(const std::string& named, const fs::path& directory) {
  if (named.empty()) return named;
  std::error_code error;
  auto file = find_file(named, directory);
  const auto shipped = configs_directory().parent_path() / named;
  if (file.empty() && fs::exists(shipped, error)) file = shipped;
  return file.empty() ? absolute_in(named, directory).string() : absolute_in(file, "").string();
}

training read_train(map_reader& map, const value& v, const fs::path& directory) {
  static const std::vector<std::string> devices{"sim", "cpu", "cuda"};
  static const std::vector<std::string> schedules{schedule_names.begin(), schedule_names.end()};
  map_reader train{map.found(), v, "train"};
  training t;
  train.read_choice("device", t.device, devices);
  train.read("data", t.data, t.device == "sim" ? need::optional : need::required);
  train.read("vocabulary", t.vocabulary);
  train.read_whole<std::uint64_t>("seed", t.seed, 0, 1'000'000'000'000);
  train.read("learning_rate", t.learning_rate, range{0, 100, true});
  train.read("weight_decay", t.weight_decay, share);
  train.read_choice("schedule", t.schedule, schedules);
  train.read("checkpoint", t.checkpoint);
  train.read_whole<std::uint32_t>("checkpoint_every", t.checkpoint_every, 1, 1'000'000'000);
  train.read_whole<std::uint32_t>("replan_every", t.replan_every, 0, 1'000'000'000);
  train.read("replan_drift", t.replan_drift, range{0, 100, true});
  std::optional<device_profile> profile;
  read_named_profile(train, directory, profile);
  if (profile) t.profile.push_back(std::move(*profile));
  train.finish();
  for (const auto& [key, path] :
       {std::pair{"data", &t.data}, {"vocabulary", &t.vocabulary}, {"checkpoint", &t.checkpoint}})
    if (train.find(key) && path->empty()) train.fail(key, "found '', expected a path");
  t.data = found_path(t.data, directory);
  t.vocabulary = found_path(t.vocabulary, directory);
  if (!t.checkpoint.empty()) t.checkpoint = absolute_in(t.checkpoint, directory).string();
  return t;
}

slot_costs read_slots(map_reader& map, const value& v) {
  map_reader slots{map.found(), v, "slots"};
  slot_costs c;
  constexpr range work{0, 1e9, true}, wait{0, 1e9};
  slots.read("forward", c.forward, work);
  slots.read("recompute", c.recompute, wait);
  slots.read("backward", c.backward, work);
  slots.read("lan", c.lan, wait);
  slots.read("wan", c.wan, wait);
  slots.finish();
  return c;
}

pipeline_wish read_pipeline(map_reader& map, const value& v, bool slots) {
  map_reader pipeline{map.found(), v, "pipeline"};
  pipeline_wish w;
  // Without a model nothing says how deep a pipeline is, or how long.
  const auto must = slots ? need::required : need::optional;
  pipeline.read_whole<std::uint32_t>("stages", w.stages, 1, 100'000, must);
  pipeline.read_whole<std::uint32_t>("data_parallel", w.data_parallel, 1, 100'000);
  pipeline.read_whole<std::uint32_t>("microbatches", w.microbatches, 1, 100'000, must);
  pipeline.read_whole<std::uint32_t>("stages_per_datacenter", w.stages_per_datacenter, 1, 100'000);
  pipeline.read_whole<std::uint32_t>("most_held", w.most_held, 1, 100'000);
  pipeline.read_whole<std::uint32_t>("connections", w.connections, 1, 4096);
  pipeline.read_whole<std::uint32_t>("tensor_parallel", w.tensor_parallel, 0, 64);
  pipeline.read("recompute", w.recompute);
  pipeline.finish();
  return w;
}

/// What a model says about a pipeline and its trainer.
void check_model_of(map_reader& map, const job_spec& job) {
  const auto& m = job.model;
  const auto parts = m.operators.empty() ? 2 * std::size_t{m.layers} : m.operators.size();
  if (job.pipeline.stages > parts)
    map.fail("pipeline",
             fmt::format("{} stages for the {} {} of '{}'", job.pipeline.stages, parts,
                         m.operators.empty() ? "sublayers" : "operators", shown(m.name)));
  if (const auto t = job.pipeline.tensor_parallel; t > 1 && !job.slots) {
    const auto inner = m.intermediate ? m.intermediate : 4 * std::uint64_t{m.hidden};
    if (!m.operators.empty() || m.family != "gpt")
      map.fail("pipeline",
               fmt::format("tensor_parallel splits models of family gpt, not '{}'", shown(m.name)));
    else if (m.heads % t != 0 || inner % t != 0)
      map.fail("pipeline",
               fmt::format("tensor_parallel {} divides not both the {} heads and the {} columns of "
                           "the MLP of '{}'",
                           t, m.heads, inner, shown(m.name)));
  }
  if (job.train && job.train->device != "sim" && m.family != "gpt")
    map.fail("train", fmt::format("'{}' is of family {}; the built-in trainer trains gpt",
                                  shown(m.name), m.family));
}

void check_batch(map_reader& map, const job_spec& job) {
  const std::uint64_t each = std::uint64_t{std::max(job.pipeline.microbatches, 1u)} *
                             std::max(job.pipeline.data_parallel, 1u);
  if (job.global_batch % each == 0) return;
  map.fail("pipeline",
           fmt::format("{} pipelines of {} micro-batches do not divide global_batch ({})",
                       std::max(job.pipeline.data_parallel, 1u),
                       std::max(job.pipeline.microbatches, 1u), job.global_batch));
}

}  // namespace

void read_training(map_reader& map, job_spec& job, const fs::path& directory) {
  const auto* train = map.find("train");
  const auto* slots = map.find("slots");
  if (train) job.train = read_train(map, *train, directory);
  if (slots) job.slots = read_slots(map, *slots);
  if (const auto* v = map.find("pipeline", slots ? need::required : need::optional))
    job.pipeline = read_pipeline(map, *v, slots != nullptr);
}

void check_training(map_reader& map, job_spec& job) {
  const bool wished = job.pipeline != pipeline_wish{};
  if (!map.found().good() || !(job.train || job.slots || wished)) return;
  if (!job.command.empty())
    return map.fail("command",
                    "a job has a command, or train, slots and pipeline: the program that it names "
                    "makes its own pipeline");
  if (job.slots && job.pipeline.tensor_parallel > 1)
    return map.fail("pipeline", "tensor_parallel splits a model, and a job in slots has none");
  if (job.train && job.slots)
    return map.fail("slots", "a job has slots or train: what costs slots is not trained");
  if (job.microbatches && job.pipeline.microbatches &&
      *job.microbatches != job.pipeline.microbatches)
    return map.fail("microbatches",
                    fmt::format("found {}, and pipeline.microbatches is {}; say it once",
                                *job.microbatches, job.pipeline.microbatches));
  if (job.microbatches) job.pipeline.microbatches = *job.microbatches;
  if (job.pipeline.microbatches) job.microbatches = job.pipeline.microbatches;
  if (job.slots) return;
  check_model_of(map, job);
  check_batch(map, job);
}

}  // namespace troupe::configs
