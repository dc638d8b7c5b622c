#include "planners/model/declared_memory.hpp"

#include <algorithm>
#include <cmath>

#include "messages/base/folds.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {
namespace {

// DistributedDataParallel and DeepSpeed send gradients from two buckets of 25 MiB by default.
constexpr double bucket_bytes = 2 * 25.0 * 1024 * 1024;

state_bytes bytes_per_parameter(const memory_options& o) {
  const bool full = is_single(o), bf16 = o.precision == "bf16";
  state_bytes each{full ? 4.0 : 2.0, full ? 4.0 : 2.0, full || bf16 ? 0.0 : 4.0};
  const double number = bf16 ? 2 : 4;
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
  // Queries and output; keys and values.
  double sides = 2 * (h + query_width(m)) + 2 * (h + kv_width(m));
  if (o.lora_targets != "attention") sides += (m.family == "llama" ? 3 : 2) * (h + i);
  return o.lora_rank * m.layers * sides;
}

double samples_of_replica(const job_spec& job, std::uint32_t data) {
  return static_cast<double>((std::uint64_t{job.global_batch} + data - 1) / data);
}

/// Samples in flight on a GPU: its share of the batch, or the largest of its micro-batches.
double samples_in_flight(const job_spec& job, std::uint32_t data, std::uint32_t planned) {
  const double mine = samples_of_replica(job, data);
  const bool by_size = planned == 0 && job.memory && job.memory->micro_batch > 0;
  if (by_size) return std::min<double>(job.memory->micro_batch, mine);
  return std::max(1.0, batch_of_replica(job, data, planned).rows);
}

bool is_mixed(const memory_options& o) {
  return o.precision.empty() || o.precision == "mixed" || is_fp8(o);
}

/// Does PyTorch's autocast choose the precision of each operation? Then it keeps copies of the
/// weights in half precision, and computes norms and softmax in single precision.
bool has_autocast(const job_spec& job) {
  return job.memory && job.kernels == "eager" && is_mixed(*job.memory);
}

/// Activations that a layer keeps for one sample, divided among `t` GPUs, in half precision
/// (Korthikanti et al., equations 1 to 4; r and x of docs/planners/memory.md). Parts of the
/// residual stream are whole on each GPU of a tensor group, since sequence parallelism is not
/// modelled.
struct layer_bytes {
  double rest = 0, matrices = 0;  // attention's matrices: what selective checkpointing drops
};
layer_bytes layer_of(const job_spec& job, double t) {
  const auto a = sublayer_of(job, true), b = sublayer_of(job, false);
  return {a.kept.for_one_of(t) + b.kept.for_one_of(t), a.matrices / t};
}

/// Activations of all layers, for one sample, divided among `t` GPUs: all of them; all but
/// attention's matrices, of which one layer's exist at a time (selective); or each layer's input,
/// and one layer's activations at a time (full).
double activation_bytes(const job_spec& job, double t) {
  const auto& m = job.model;
  const auto& o = *job.memory;
  if (!m.operators.empty()) {
    const double sum = sum_of(m.operators, &model_operator::output_bytes);
    const double largest = max_of(m.operators, 0, &model_operator::output_bytes);
    return o.checkpointing == "full" ? std::min(sum, 2 * largest) : sum;
  }
  const double l = m.layers;
  const auto layer = layer_of(job, t);
  if (o.checkpointing == "full")
    return l * 2 * m.sequence * m.hidden + layer.rest + layer.matrices +
           sublayer_of(job, false).gradients.for_one_of(t);
  if (o.checkpointing == "selective") return l * layer.rest + layer.matrices;
  return l * (layer.rest + layer.matrices);
}

/// Does each operation of the loss make numbers of its own for all logits?
bool has_loss_by_operations(const job_spec& job) {
  return job.kernels == "eager" || job.kernels == "sdpa";
}

/// The inputs of the last norm and the head, and what there is of each logit. A loss in chunks has
/// the logits of a chunk alone, too few to count.
double end_bytes(const job_spec& job, double t) {
  const auto& m = job.model;
  if (!m.operators.empty()) return 0;
  // In single precision with their gradient; or (as PyTorch's cross_entropy has them) as the head
  // made them, in single precision, their log-softmax, and the gradients of both.
  const double each = job.memory->chunked_loss.value_or(false) ? 0
                      : has_loss_by_operations(job)            ? 2 + 4 + 4 + 4 + 4
                                                               : 4 + 4;
  const double s = m.sequence;
  return s * (4.0 * m.hidden + each * m.vocabulary / t);
}

/// ZeRO-3 gathers a layer's weights before it runs, and prefetches the next layer's.
double gathered_bytes(const model& m, const state_bytes& each, double parameters, double t) {
  const double layers = m.operators.empty() ? m.layers : m.operators.size();
  return 2 * each.weight * parameters / std::max(layers, 1.0) / t;
}

/// Parameters that `of` of the `tensor` GPUs of a group share, and those that are trained.
struct shared_parameters {
  double all = 0, trained = 0, of = 1;
};

/// States, context, and the buffers of collectives and the update.
memory_parts states_and_buffers(const job_spec& job, const shared_parameters& p, double data,
                                double tensor) {
  const auto& o = *job.memory;
  const auto each = bytes_per_parameter(o);
  const auto shard = [&](std::uint32_t stage) { return o.zero >= stage ? data : 1; };
  memory_parts parts;
  const double frozen = o.lora_rank > 0 ? p.all : 0;
  parts.weights = each.weight * (frozen + p.trained) / p.of / shard(3);
  parts.gradients = each.gradient * p.trained / p.of / shard(2);
  parts.optimizer = each.optimizer * p.trained / p.of / shard(1);
  parts.context = cuda_context_bytes;
  auto& bytes = parts.buffers;
  if (data > 1) bytes = std::min(bucket_bytes, each.gradient * p.trained / p.of);
  if (o.zero == 3) bytes += gathered_bytes(job.model, each, shape_of(job.model).parameters, tensor);
  // DeepSpeed updates its shard with gradients in single precision.
  if ((o.zero == 1 || o.zero == 2) && is_mixed(o)) bytes += 4 * p.trained / p.of / data;
  if (has_autocast(job)) bytes += each.weight * p.trained / p.of;
  return parts;
}

}  // namespace

kept_by_number kept_by_kernels(const job_spec& job) {
  if (job.kernels == "flash") return {4, 0};  // no masks of dropout either
  if (job.kernels == "sdpa") return {5, 0};
  if (has_autocast(job)) return {7, 7};
  return {};
}

// A plain MLP keeps what comes into its activation and what leaves it. A gated one keeps both of
// the products that it multiplies, the result, and one of them before its activation, which fused
// kernels compute again. Beside these are, while its backward runs, as many gradients as it
// multiplies numbers, and those of the residual stream before and after it.
sublayer_bytes sublayer_of(const job_spec& job, bool attention) {
  constexpr double half = 2;
  const auto& m = job.model;
  const double s = m.sequence, h = m.hidden;
  const double q = query_width(m), kv = kv_width(m),
               i = m.intermediate == 0 ? 4 * h : m.intermediate;
  const auto each = kept_by_kernels(job);
  sublayer_bytes out;
  out.kept.whole = each.stream * s * h;
  out.gradients.whole = 2 * half * s * h;
  if (attention) {
    out.kept.divided = half * s * (2 * q + 2 * kv);
    out.matrices = each.matrix * m.heads * s * s;
    out.gradients.divided = half * s * (q + 2 * kv);
    return out;
  }
  const bool gated = m.family == "llama";
  const bool fused = !has_loss_by_operations(job);
  out.kept.divided = half * s * i * (!gated ? 2 : fused ? 3 : 4);
  out.gradients.divided = half * s * i * (gated ? 3 : 2);
  return out;
}

double share_of_tokens(const job_spec& job) {
  return 1.0 / context_parallel_of(job.pipeline);
}

double trained_parameters(const job_spec& job) {
  if (job.memory && job.memory->lora_rank > 0) return adapter_parameters(job.model, *job.memory);
  return shape_of(job.model).parameters;
}

double backward_of_weights(const job_spec& job, double plain) {
  return job.memory && job.memory->lora_rank > 0 ? plain - 1 : plain;
}

double backward_forwards(const job_spec& job, double plain) {
  const bool again = job.memory && job.memory->checkpointing == "full";
  return backward_of_weights(job, plain) + (again ? 1 : 0);
}

namespace {

/// MARP's memory of the samples that are in flight, corrected by what the job's kernels keep more
/// or less than the formula's.
memory_parts marp_memory_of(const job_spec& job, std::uint32_t data, std::uint32_t tensor,
                            std::uint32_t planned) {
  const auto& m = job.model;
  const double samples = std::ceil(samples_in_flight(job, data, planned));
  auto parts = marp_memory(m, static_cast<std::uint32_t>(samples), 1, tensor);
  if (!has_no_matrix(job.kernels) || !m.operators.empty()) return parts;
  const kept_by_number each = kept_by_kernels(job), marp;
  const double s = m.sequence, stream = 2 * (each.stream - marp.stream) * m.hidden;
  const double matrix = (each.matrix - marp.matrix) * m.heads * s / tensor;
  parts.activations += samples * m.layers * s * (stream + matrix);
  return parts;
}

}  // namespace

replica_batch batch_of_replica(const job_spec& job, std::uint32_t data, std::uint32_t planned) {
  const double samples = std::max(1.0, samples_of_replica(job, data));
  double m = planned > 0 ? planned : job.microbatches.value_or(1);
  if (planned == 0 && job.memory && job.memory->micro_batch > 0)
    m = std::ceil(samples / job.memory->micro_batch);
  m = std::clamp(m, 1.0, samples);
  return {m, samples / m};
}

bool fixes_micro_batch(const job_spec& job) {
  return job.microbatches || (job.memory && job.memory->micro_batch > 0);
}

memory_parts program_memory(const job_spec& job, std::uint32_t data, std::uint32_t tensor,
                            std::uint32_t planned) {
  if (!job.memory) return marp_memory_of(job, data, tensor, planned);
  const double t = tensor, all = shape_of(job.model).parameters;
  // Context-parallel GPUs have the same samples, and a part of each.
  const double context = context_parallel_of(job.pipeline);
  const auto replicas = static_cast<std::uint32_t>(std::max(1.0, data / context));
  const double samples = samples_in_flight(job, replicas, planned) / context;
  const double number = is_single(*job.memory) ? 2 : 1;  // the formulas are of half precision
  auto parts = states_and_buffers(job, {all, trained_parameters(job), t}, data, t);
  parts.activations = number * samples * activation_bytes(job, t);
  parts.ends = samples * end_bytes(job, t);
  return parts;
}

memory_parts program_stage_memory(const job_spec& job, const stage_part& p,
                                  const stage_load& load) {
  const double t = p.tensor_parallel;
  const double trained = p.parameters * trained_parameters(job) / shape_of(job.model).parameters;
  auto parts = states_and_buffers(job, {p.parameters, trained}, load.pipelines, t);
  if (p.last) parts.ends = load.rows * share_of_tokens(job) * end_bytes(job, t);
  return parts;
}

double unshared_bytes_per_parameter(const job_spec& job) {
  const auto& o = *job.memory;
  if (o.gb > 0 || o.lora_rank > 0) return 0;
  const auto each = bytes_per_parameter(o);
  return (o.zero >= 3 ? 0 : each.weight) + (o.zero >= 2 ? 0 : each.gradient) +
         (o.zero >= 1 ? 0 : each.optimizer);
}

double program_bytes(const job_spec& job, std::uint32_t data, std::uint32_t tensor, double headroom,
                     std::uint32_t planned) {
  if (job.memory && job.memory->gb > 0) return job.memory->gb * bytes_per_gb;
  if (!facts_of(job).has_known_memory) return unknown_program_bytes * (1 + headroom);
  return program_memory(job, data, tensor, planned).total() * (1 + headroom);
}

}  // namespace troupe::planners
