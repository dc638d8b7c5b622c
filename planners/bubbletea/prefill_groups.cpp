#include "planners/bubbletea/prefill_groups.hpp"

#include <algorithm>

#include "messages/base/refuse.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/link_cost.hpp"
#include "planners/bubbletea/inference_memory.hpp"
#include "planners/cost/model_partition.hpp"

namespace troupe::planners {

namespace {

/// The layers of each guest of a group of that many; empty: they do not fit. Every layer weighs the
/// same, so that an even cut is the fastest pipeline; a guest's hidden vectors do not grow with its
/// layers and are subtracted from its room first.
std::vector<std::uint32_t> layers_of(const served_layer& layer, const prefill_group_options& o,
                                     std::uint32_t guests) {
  if (guests > layer.layers) return {};
  const auto one = inference_memory(layer, 1, o.tokens, o.rows);
  const double room = o.guest_bytes - one.hidden;
  const std::vector<chain_link> chain(layer.layers, {1, one.weights + one.cache});
  return room > 0 ? cut_evenly(chain, guests, room) : std::vector<std::uint32_t>{};
}

reason too_large(const served_layer& layer, const prefill_group_options& o, std::uint32_t guests) {
  const auto each = (layer.layers + guests - 1) / guests;
  const auto m = inference_memory(layer, each, o.tokens, o.rows);
  return because(reason::kind::infeasible,
                 "{} of {} layers on a GPU need {:.2f} GB (weights {:.2f}, cache of {} tokens "
                 "{:.2f}, hidden vectors {:.2f}); guests have {:.2f} GB",
                 each, layer.layers, m.total() / bytes_per_gb, m.weights / bytes_per_gb, o.tokens,
                 m.cache / bytes_per_gb, m.hidden / bytes_per_gb, o.guest_bytes / bytes_per_gb);
}

/// The number of groups of each stage's peers. Without a wanted depth as many groups as memory
/// allows: a group of few guests hands tiles on less often, and more groups take prompts at a time.
/// Peers that do not divide evenly make groups of two sizes, and both must hold the layers.
expected<std::uint32_t> groups_of_stage(const pipeline_layout& layout, const served_layer& layer,
                                        const prefill_group_options& o) {
  const auto pipelines = layout.pipelines;
  if (o.depth && (*o.depth == 0 || *o.depth > pipelines))
    return refuse(reason::kind::invalid,
                  "prefill pipelines of depth {} need as many peers of a stage; the "
                  "training has {} pipelines",
                  *o.depth, pipelines);
  for (auto groups = o.depth ? pipelines / *o.depth : pipelines; groups > 0; --groups) {
    const auto fewest = pipelines / groups, max = (pipelines + groups - 1) / groups;
    if (!layers_of(layer, o, fewest).empty() && !layers_of(layer, o, max).empty()) return groups;
    if (o.depth) break;
  }
  const auto max = std::min(o.depth ? *o.depth : pipelines, layer.layers);
  return refuse(too_large(layer, o, max));
}

/// The slowest of the group's hops counts for all of them, so that a prompt's plan needs one hop
/// time per tile, whatever pair of guests hands it on.
prefill_group make_group(const cluster& c, const pipeline_layout& layout, const served_layer& layer,
                         const std::vector<std::uint32_t>& peers, std::uint32_t stage,
                         const std::vector<std::uint32_t>& layers) {
  prefill_group g;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const auto node = layout.at(peers[i], stage).node;
    g.guests.push_back({peers[i] * layout.stages + stage, first, layers[i],
                        prefill_rate_of(layer, c.gpu_of(node))});
    first += layers[i];
    if (i == 0) continue;
    const auto to = link_cost_between(c, layout.at(peers[i - 1], stage).node, node);
    g.hop_token_s = std::max(g.hop_token_s, to.alone_s(layer.hidden_bytes(1)));
    g.hop_latency_s = std::max(g.hop_latency_s, to.latency_s);
  }
  return g;
}

}  // namespace

expected<std::vector<prefill_group>> prefill_groups(const cluster& c, const pipeline_layout& layout,
                                                    const served_layer& layer,
                                                    const prefill_group_options& o) {
  for (const auto& parts : layout.parts)
    for (const auto& part : parts)
      if (part.tensor_parallel > 1)
        return refuse(reason::kind::invalid,
                      "{} GPUs share a stage of the training; only stages on one GPU "
                      "each can hold layers of a served model",
                      part.tensor_parallel);
  for (std::uint32_t s = 0; s < layout.stages; ++s)
    if (layout.runs_of(s).size() > 1)
      return refuse(reason::kind::invalid,
                    "the pipelines of stage {} are in several datacenters; a served model's layers "
                    "are held by peers in one",
                    s);
  const auto count = groups_of_stage(layout, layer, o);
  if (!count) return refuse(count.error());
  std::vector<prefill_group> groups;
  for (std::uint32_t stage = 0; stage < layout.stages; ++stage)
    for (std::uint32_t g = 0; g < *count; ++g) {
      std::vector<std::uint32_t> peers;
      for (auto p = g; p < layout.pipelines; p += *count) peers.push_back(p);
      const auto layers = layers_of(layer, o, static_cast<std::uint32_t>(peers.size()));
      groups.push_back(make_group(c, layout, layer, peers, stage, layers));
    }
  return groups;
}

prefill_group planned_group(const guest_group& g, std::uint32_t first_device) {
  prefill_group all;
  for (const auto& p : g.guests)
    all.guests.push_back(
        {first_device++, p.first_layer, p.layers, {p.token_s, p.pair_s, p.half_tokens}});
  all.hop_token_s = g.hop_token_s;
  all.hop_latency_s = g.hop_latency_s;
  return all;
}

}  // namespace troupe::planners
