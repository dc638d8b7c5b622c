#include "actors/training/device/stage_backend.hpp"

#include <algorithm>
#include <set>

#include "actors/training/device/layers_backend.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "gpu/model/layer_index.hpp"
#include "gpu/model/tokens.hpp"
#include "gpu/saving/state_copy.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

/// The order of an iteration, from which a device derives its memory needs.
std::vector<gpu::stage_spec::pass> passes_of(const std::vector<stage_step>& order) {
  using kind = stage_step::kind;
  using pass = gpu::stage_spec::pass::kind;
  // A forward whose micro-batch is recomputed later keeps its input only.
  std::set<std::uint32_t> recomputed;
  for (const auto& s : order)
    if (s.what == kind::recompute) recomputed.insert(s.microbatch);
  std::vector<gpu::stage_spec::pass> all;
  for (const auto& s : order)
    all.push_back({s.what == kind::backward            ? pass::backward
                   : s.what == kind::recompute         ? pass::recompute
                   : recomputed.contains(s.microbatch) ? pass::forward
                                                       : pass::forward_kept,
                   s.microbatch});
  return all;
}

gpu::stage_spec spec_of(const stage_setup& s) {
  gpu::stage_spec spec;
  spec.model = s.model;
  spec.first_sublayer = s.first_sublayer;
  spec.sublayers = s.sublayers;
  spec.has_embedding = s.name.stage == 0;
  spec.has_head = s.name.stage + 1 == s.stages;
  spec.rows = s.rows;
  spec.iteration = passes_of(s.order);
  spec.seed = s.how.seed;
  spec.lease = s.name.lease;
  spec.learning_rate = s.how.learning_rate;
  spec.weight_decay = s.how.weight_decay;
  spec.emulate_speed = s.emulate_speed;
  return spec;
}

/// By the table of kinds; `make_cuda` takes the place of CUDA's row in tests of nodes without a
/// GPU.
expected<std::unique_ptr<gpu::stage_device>> make_device(
    const stage_setup& s, const gpu::stage_spec& spec,
    const std::shared_ptr<gpu::device_executor>& executor,
    const gpu::cuda_device_maker& make_cuda) {
  if (s.devices.empty()) return refuse(reason::kind::invalid, "a stage needs a device");
  const std::vector<int> indices{s.devices.begin(), s.devices.end()};
  const auto kind = device_kind_of(s.backend);
  if (kind == device_kind::cuda && make_cuda) return make_cuda(spec, indices);
  if (const auto* type = kind ? gpu::type_of(*kind) : nullptr)
    return type->make_stage(spec, indices, executor);
  return refuse(reason::kind::infeasible, "a node's devices are of kind {}, not '{}'",
                real_devices(&device_facts::can_train), s.backend);
}

/// Null: the stage is neither first nor last.
expected<token_feed> token_feed_of(const stage_setup& s) {
  if (s.name.stage != 0 && s.name.stage + 1 != s.stages) return token_feed{};
  auto opened = gpu::token_data::open(s.how.data, s.how.vocabulary, s.model);
  if (!opened) return refuse(opened.error());
  const auto data = std::make_shared<const gpu::token_data>(std::move(*opened));
  return [data, seed = s.how.seed, rows = s.rows, before = s.first_microbatch()](
             std::uint64_t iteration,
             std::uint32_t microbatch) -> expected<std::pair<payload, payload>> {
    auto b = data->sample(seed, iteration, (before + microbatch) * rows, rows);
    if (!b) return refuse(b.error());
    return std::pair{std::move(b->tokens), std::move(b->targets)};
  };
}

}  // namespace

// Every pipeline reads other rows of the data: a micro-batch's rows follow those of all
// micro-batches before it in the iteration, counted over the pipelines. They depend on the seed,
// the iteration and that number only, so that a resumed training, or one on other GPUs, sees the
// same data.
expected<stage_backend> make_backend(const stage_setup& s,
                                     const std::shared_ptr<gpu::device_executor>& executor,
                                     const gpu::cuda_device_maker& make_cuda,
                                     const gpu::worker_starter& start_worker) {
  if (s.how.program) return make_layers_backend(s, executor, start_worker);
  const auto spec = spec_of(s);
  auto device = make_device(s, spec, executor, make_cuda);
  if (!device) return refuse(device.error());
  auto tokens = token_feed_of(s);
  if (!tokens) return refuse(tokens.error());
  return stage_backend{std::move(*device), std::move(*tokens)};
}

expected<stage_backend> share_backend(const stage_setup& s, stage_backend peer) {
  if (!peer.device)
    return refuse(reason::kind::unavailable, "the device of stage {} is gone", s.name.stage);
  if (s.how.program) {
    const auto* device = dynamic_cast<const gpu::program_device*>(peer.device.get());
    TROUPE_INVARIANT(device, "a program's stage is computed by a worker");
    if (!device->has_moving_state()) return peer;
    return refuse(reason::kind::infeasible,
                  "passes change buffers of stage {}, and those of pipeline {} were lost with it",
                  s.name.stage, s.name.pipeline);
  }
  auto tokens = token_feed_of(s);
  if (!tokens) return refuse(tokens.error());
  peer.tokens = std::move(*tokens);
  return peer;
}

gpu::checkpoint_writer::work writing_of(const stage_setup& s, const std::string& directory,
                                        gpu::operations::values::result copy) {
  return [spec = spec_of(s), root = s.how.checkpoint, directory,
          copy = std::move(copy)]() -> expected<void> {
    if (auto ok = gpu::check_fence(root, spec.lease); !ok) return ok;
    return gpu::save_copy(directory, spec, copy);
  };
}

std::string checkpoint_path(const std::string& directory, std::uint64_t iteration) {
  return gpu::checkpoint_directory(directory, iteration).string();
}

// The index is written last and by the trainer alone: a checkpoint without one does not exist. The
// other pipelines have the same parameters and write nothing.
expected<void> complete_checkpoint(const std::vector<stage_setup>& stages, std::uint64_t iteration,
                                   const std::optional<gpu::best_checkpoint>& best) {
  const auto& first = stages.front();
  const auto& root = first.how.checkpoint;
  const auto directory = gpu::checkpoint_directory(root, iteration);
  std::vector<std::string> files;
  for (const auto& s : stages)
    if (s.name.pipeline == 0) files.push_back(gpu::stage_file(spec_of(s)));
  return gpu::write_fenced(root, first.name.lease, [&] {
    auto ok = first.how.program ? gpu::write_layer_index(directory, first.name.lease, iteration)
                                : gpu::write_index(directory, first.model, iteration, files);
    if (ok && best) ok = gpu::write_best(root, *best);
    if (ok && first.how.keep_checkpoints > 0)
      gpu::remove_old_checkpoints(root, iteration,
                                  {.newest = first.how.keep_checkpoints,
                                   .best = best ? best->iteration : 0,
                                   .each = first.how.keep_every.value_or(0)});
    return ok;
  });
}

}  // namespace troupe::actors
