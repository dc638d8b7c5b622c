#include "actors/training/trainer/resume_events.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "gpu/examples/tuning_rows.hpp"

namespace troupe::actors {

namespace {

/// Options of a model folder's training, of which the job's count. Paths of rows differ anyway.
void add_changes(std::vector<std::string>& to, const std::string& then, const std::string& now) {
  const auto before = gpu::update_options(then);
  for (const auto& [name, value] : gpu::update_options(now))
    if (const auto at = before.find(name); at != before.end() && at->second != value)
      to.push_back(fmt::format("{} was {} when the checkpoint was written, and is {} from here on",
                               name, at->second, value));
}

}  // namespace

std::vector<std::string> changes_since(const gpu::layer_origin& then, const job_spec& now) {
  std::vector<std::string> sentences;
  if (!now.train || !now.train->program) return sentences;
  const auto& program = *now.train->program;
  if (then.global_batch && *then.global_batch != now.global_batch)
    sentences.push_back(fmt::format(
        "the checkpoint is of a global batch of {} samples, the job's is {}: it goes on "
        "at sample {} of their order",
        *then.global_batch, now.global_batch, then.samples));
  if (program.file.empty()) {
    if (then.arguments) add_changes(sentences, *then.arguments, program.arguments);
    return sentences;
  }
  const auto arguments = gpu::in_order(program.arguments);
  if (then.arguments && *then.arguments != arguments)
    sentences.push_back(fmt::format(
        "the checkpoint was written with arguments {}, the job's are {}: the options of "
        "the optimizer and its schedule go on as they were saved",
        *then.arguments, arguments));
  if (!then.sha256.empty() && then.sha256 != program.sha256)
    sentences.push_back(
        "the program's file has changed since the checkpoint was written: the options of the "
        "optimizer and its schedule go on as they were saved");
  return sentences;
}

std::string smaller_than_asked(const pipeline_wish& wish, std::uint32_t stages,
                               std::uint32_t pipelines) {
  if (stages >= wish.stages && pipelines >= wish.data_parallel) return {};
  const auto wished = std::max(wish.stages, 1U), peers = std::max(wish.data_parallel, 1U);
  return fmt::format(
      "asked for {} stage{} in {} pipeline{}, and has {} in {}: the GPUs that it may have, or the "
      "places at which its layers can be cut, allow no more",
      wished, wished == 1 ? "" : "s", peers, peers == 1 ? "" : "s", stages, pipelines);
}

}  // namespace troupe::actors
