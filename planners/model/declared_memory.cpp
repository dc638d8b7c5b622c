#include "planners/model/declared_memory.hpp"

#include <algorithm>

#include "planners/model/model_chain.hpp"

namespace troupe::planners {
namespace {

// CUDA's context with the libraries' kernels and workspaces, and NCCL's channels.
constexpr double context_bytes = 1e9;
// DistributedDataParallel and DeepSpeed send gradients from two buckets of 25 MiB by default.
constexpr double bucket_bytes = 2 * 25.0 * 1024 * 1024;

state_bytes states_of(const memory_options& o) {
  const bool full = is_single(o), half = o.precision == "bf16";
  state_bytes each{full ? 4.0 : 2.0, full ? 4.0 : 2.0, full || half ? 0.0 : 4.0};
  const double number = half ? 2 : 4;
  if (o.optimizer == "adam8bit")
    each.optimizer += 2;
  else if (o.optimizer == "momentum")
    each.optimizer += number;
  else if (o.optimizer != "sgd")
    each.optimizer += 2 * number;
  return each;
}

/// LoRA's two factors for each matrix [in, out] have rank * (in + out) parameters.
double adapter_parameters(const model& m, const memory_options& o) {
  const double h = m.hidden, i = m.intermediate == 0 ? 4 * h : m.intermediate;
  const double kv = h * (m.kv_heads == 0 ? 1.0 : m.kv_heads / std::max<double>(m.heads, 1));
  double sides = 2 * (h + h) + 2 * (h + kv);  // queries and output; keys and values
  if (o.lora_targets != "attention") sides += (m.family == "llama" ? 3 : 2) * (h + i);
  return o.lora_rank * m.layers * sides;
}

/// Samples in flight on a GPU.
double samples_in_flight(const job_spec& job, std::uint32_t data) {
  const double mine = (std::uint64_t{job.global_batch} + data - 1) / data;
  if (job.memory->micro_batch > 0) return std::min<double>(job.memory->micro_batch, mine);
  return std::max(1.0, mine / job.microbatches.value_or(1));
}

/// Of all layers, for one sample, divided among `t` GPUs.
double activation_bytes(const model& m, const memory_options& o, double t) {
  if (!m.operators.empty()) {
    double sum = 0, largest = 0;
    for (const auto& op : m.operators) {
      sum += op.output_bytes;
      largest = std::max(largest, op.output_bytes);
    }
    return o.checkpointing == "full" ? std::min(sum, 2 * largest) : sum;
  }
  const double s = m.sequence, h = m.hidden, a = m.heads, l = m.layers;
  const double matrices =
      5 * a * s * s / t;  // attention matrices, which FlashAttention does not store
  const double layer = s * h * (10 + 24 / t);
  if (o.checkpointing == "full") return l * 2 * s * h + layer + matrices;
  if (o.checkpointing == "selective") return l * layer + matrices;
  return l * (layer + matrices);
}

/// The inputs of the last norm and the head, and logits in single precision with their gradient.
double end_bytes(const model& m, double t) {
  if (!m.operators.empty()) return 0;
  const double s = m.sequence;
  return s * (4.0 * m.hidden + 2 * 4.0 * m.vocabulary / t);
}

/// ZeRO-3 gathers a layer's weights before it runs, and prefetches the next layer's.
double gathered_bytes(const model& m, const state_bytes& each, double parameters, double t) {
  const double layers = m.operators.empty() ? m.layers : m.operators.size();
  return 2 * each.weight * parameters / std::max(layers, 1.0) / t;
}

}  // namespace

double trained_parameters(const job_spec& job) {
  if (job.memory && job.memory->lora_rank > 0) return adapter_parameters(job.model, *job.memory);
  return shape_of(job.model).parameters;
}

double backward_forwards(const job_spec& job, double plain) {
  if (!job.memory) return plain;
  return plain + (job.memory->checkpointing == "full" ? 1 : 0) -
         (job.memory->lora_rank > 0 ? 1 : 0);
}

memory_parts program_memory(const job_spec& job, std::uint32_t data, std::uint32_t tensor) {
  if (!job.memory) return marp_memory(job.model, job.global_batch, data, tensor);
  const auto& o = *job.memory;
  const double t = tensor, d = data;
  const double all = shape_of(job.model).parameters, trained = trained_parameters(job);
  const auto each = states_of(o);
  const auto shard = [&](std::uint32_t stage) { return o.zero >= stage ? d : 1; };
  const double samples = samples_in_flight(job, data);
  const double number = is_single(o) ? 2 : 1;  // the formulas are of half precision

  memory_parts parts;
  const double frozen = o.lora_rank > 0 ? all : 0;
  parts.weights = each.weight * (frozen + trained) / t / shard(3);
  parts.gradients = each.gradient * trained / t / shard(2);
  parts.optimizer = each.optimizer * trained / t / shard(1);
  parts.activations = number * samples * activation_bytes(job.model, o, t);
  parts.ends = samples * end_bytes(job.model, t);
  if (data > 1) parts.buffers = std::min(bucket_bytes, each.gradient * trained / t);
  if (o.zero == 3) parts.buffers += gathered_bytes(job.model, each, all, t);
  parts.context = context_bytes;
  return parts;
}

double program_bytes(const job_spec& job, std::uint32_t data, std::uint32_t tensor,
                     double headroom) {
  if (job.memory && job.memory->gb > 0) return job.memory->gb * bytes_per_gb;
  return program_memory(job, data, tensor).total() * (1 + headroom);
}

}  // namespace troupe::planners
