#include "planners/bubbletea/prefill_times.hpp"

#include <algorithm>

#include "messages/base/refuse.hpp"
#include "planners/devices/kernel_time.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {

expected<served_layer> served_layer_of(const model& m) {
  if (!m.operators.empty() || (m.family != "gpt" && m.family != "llama") || m.layers == 0)
    return refuse(reason::kind::invalid,
                  "model '{}' cannot be served: only transformers of the families gpt "
                  "and llama generate text",
                  m.name);
  const auto operators = expand(m);  // the embedding, then attention and MLP of each layer
  served_layer l;
  l.layers = m.layers;
  l.hidden = m.hidden;
  l.parameters = operators[1].parameters + operators[2].parameters;
  l.queries = query_width(m);
  l.kv_bytes = 2 * 2 * kv_width(m);  // keys and values, two bytes each
  return l;
}

prefill_rate prefill_rate_of(const served_layer& layer, const gpu_type& gpu, double half_tokens) {
  const double speed = flops_s(gpu);
  return {2 * layer.parameters / speed, 4 * layer.queries / speed, half_tokens};
}

// A roofline: a decode of few sequences is bound by reading weights and caches once, one of many by
// its products. A GPU type without a memory bandwidth counts its products alone.
double decode_s(const served_layer& layer, const gpu_type& gpu, std::uint32_t layers,
                double sequences, double cached) {
  const double flops = 2 * layer.parameters * sequences + 4 * layer.queries * cached;
  const double bytes = layer.weight_bytes() + layer.kv_bytes * cached;
  const double memory = gpu.memory_gbytes_s * 1e9;
  return layers * std::max(flops / flops_s(gpu), memory > 0 ? bytes / memory : 0);
}

double hop_s(const served_layer& layer, const link& to, double tokens) {
  const double bytes = layer.hidden_bytes(tokens);
  return bytes / to.bytes_s(bytes, 1) + to.latency_us * 1e-6;
}

}  // namespace troupe::planners
