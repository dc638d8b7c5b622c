#include "actors/stage_backend.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "gpu/checkpoint.hpp"
#include "gpu/tokens.hpp"

namespace troupe::actors {

namespace {

/// How many micro-batches the order has at once.
void count_at_once(const std::vector<stage_step>& order, gpu::stage_spec& spec) {
  using kind = stage_step::kind;
  std::set<std::uint32_t> recomputed;
  for (const auto& s : order)
    if (s.what == kind::recompute) recomputed.insert(s.microbatch);
  std::uint32_t kept = 0, dropped = 0;
  for (const auto& s : order) {
    const bool again = recomputed.contains(s.microbatch);
    if (s.what == kind::forward) ++(again ? dropped : kept);
    if (s.what == kind::recompute) --dropped, ++kept;
    if (s.what == kind::backward) --kept;
    spec.most_kept = std::max(spec.most_kept, kept);
    spec.most_dropped = std::max(spec.most_dropped, dropped);
  }
}

gpu::stage_spec spec_of(const stage_setup& s) {
  gpu::stage_spec spec;
  spec.model = s.model;
  spec.first_sublayer = s.first_sublayer;
  spec.sublayers = s.sublayers;
  spec.embeds = s.name.stage == 0;
  spec.predicts = s.name.stage + 1 == s.stages;
  spec.rows = s.rows;
  count_at_once(s.order, spec);
  spec.seed = s.how.seed;
  spec.learning_rate = s.how.learning_rate;
  spec.weight_decay = s.how.weight_decay;
  return spec;
}

expected<std::unique_ptr<gpu::stage_device>> make_device(const stage_setup& s,
                                                         const gpu::stage_spec& spec) {
  if (s.devices.empty()) return refuse(reason::kind::invalid, "a stage needs a device");
  const auto shares = static_cast<std::uint32_t>(s.devices.size());
  if (s.backend == "cpu") return gpu::make_shared_cpu_device(spec, shares);
  if (s.backend == "cuda")
    return gpu::make_shared_cuda_device(spec, {s.devices.begin(), s.devices.end()});
  return refuse(reason::kind::infeasible,
                fmt::format("a node's devices are of kind cpu or cuda, not '{}'", s.backend));
}

}  // namespace

expected<stage_backend> make_backend(const stage_setup& s) {
  const auto spec = spec_of(s);
  auto device = make_device(s, spec);
  if (!device) return tl::unexpected<reason>(device.error());
  stage_backend result;
  result.device = std::move(*device);
  if (!spec.embeds && !spec.predicts) return result;
  auto opened = gpu::token_data::open(s.how.data, s.how.vocabulary, s.model);
  if (!opened) return tl::unexpected<reason>(opened.error());
  const auto data = std::make_shared<const gpu::token_data>(std::move(*opened));
  // The micro-batches of all pipelines are numbered through: however many share the batch, the same
  // sequences make it up.
  result.tokens = [data, seed = s.how.seed, rows = s.rows,
                   first = s.name.pipeline * s.microbatches](std::uint64_t iteration,
                                                             std::uint32_t microbatch) {
    auto b = data->sample(seed, iteration, 0, first + microbatch, rows);
    return std::pair{std::move(b.tokens), std::move(b.targets)};
  };
  return result;
}

std::uint64_t newest_saved(const std::string& directory) {
  const auto found = gpu::newest_checkpoint(directory);
  return found ? found->iteration : 0;
}

std::string checkpoint_path(const std::string& directory, std::uint64_t iteration) {
  return gpu::checkpoint_directory(directory, iteration).string();
}

expected<void> complete_checkpoint(const std::vector<stage_setup>& stages,
                                   std::uint64_t iteration) {
  const auto& first = stages.front();
  std::vector<std::string> files;
  for (const auto& s : stages)
    if (s.name.pipeline == 0) files.push_back(gpu::stage_file(spec_of(s)));
  const auto ok = gpu::write_index(gpu::checkpoint_directory(first.how.checkpoint, iteration),
                                   first.model, iteration, files);
  if (!ok.text.empty()) return tl::unexpected<reason>(ok);
  return {};
}

}  // namespace troupe::actors
