#include "actors/training/trainer/resume_events.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace troupe::actors {

std::vector<std::string> changes_since(const gpu::layer_origin& then, const job_spec& now) {
  std::vector<std::string> sentences;
  if (!now.train || !now.train->program) return sentences;
  const auto& program = *now.train->program;
  if (then.global_batch && *then.global_batch != now.global_batch)
    sentences.push_back(fmt::format(
        "the checkpoint is of a global batch of {} samples, the job's is {}: it goes on "
        "at sample {} of their order",
        *then.global_batch, now.global_batch, then.samples));
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
