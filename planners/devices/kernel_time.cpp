#include "planners/devices/kernel_time.hpp"

#include <algorithm>

namespace troupe::planners {

namespace {

constexpr kernel_constants constants;

/// Megatron-LM, apex, XLA; also a job that does not say.
bool is_fused(const job_spec& job) {
  return job.kernels.empty() || job.kernels == "fused";
}

/// Whether the program launches one kernel per operation outside of attention.
bool is_eager(const job_spec& job) {
  return job.kernels == "eager" || job.kernels == "sdpa";
}

bool has_fp8(const job_spec& job, const gpu_type& gpu) {
  return job.memory && is_fp8(*job.memory) && gpu.fp8_tflops;
}

/// The rate of products that stay in half precision where others are in 8 bits.
double wide_flops_s(const job_spec& job, const gpu_type& gpu) {
  return has_fp8(job, gpu) ? flops_s(gpu) : flops_s(job, gpu);
}

/// A forward's products of one sample without FlashAttention's, s. In 8 bits only those with
/// weights are, but for the head: attention has none, and Transformer Engine's programs leave the
/// head in half precision.
double products_s(const job_spec& job, const gpu_type& gpu, const gpu_work& w, double attention) {
  const double products = w.flops - attention;
  if (!has_fp8(job, gpu)) return products / flops_s(job, gpu);
  const double wide = w.head_flops + w.kernels.attention_flops / w.tensor - attention;
  return (products - wide) / flops_s(job, gpu) + wide / wide_flops_s(job, gpu);
}

/// Bytes that the loss moves of a logit, a third of what forward and backward do.
double logit_bytes(const job_spec& job) {
  const bool by_operations = job.kernels == "sdpa" || is_fused(job);
  return by_operations ? constants.loss_by_operations_bytes : constants.loss_bytes;
}

/// Whether an update launches kernels for each parameter. Programs that divide their model among
/// GPUs do not: Megatron-LM, DeepSpeed and nanotron update all parameters by fused optimizers.
bool updates_one_by_one(const job_spec& job, const gpu_work& w) {
  return is_eager(job) && !w.divided;
}

/// Bytes that elementwise operations move in the forward of one sample: w (n_s (15/t + 3) + 3 n_m /
/// t), and the logits.
double elementwise_bytes(const job_spec& job, const gpu_work& w) {
  const auto& k = constants;
  const bool fused_layers = job.kernels == "flash";
  const double passes =
      (k.divided_passes / w.tensor + k.whole_passes) * (fused_layers ? k.flash_share : 1);
  const double over_matrix = has_no_matrix(job.kernels) ? 0
                             : is_eager(job)            ? k.eager_matrix_passes
                                                        : k.matrix_passes;
  const double numbers = w.kernels.stream * passes + w.kernels.matrices / w.tensor * over_matrix;
  return (has_single_precision(job) ? 4 : 2) * numbers + logit_bytes(job) * w.kernels.logits;
}

/// FLOPs of one sample's forward that FlashAttention does on one GPU. For a type without kernel_us
/// all FLOPs are alike.
double attention_flops(const job_spec& job, const gpu_type& gpu, const gpu_work& w) {
  const bool apart = has_no_matrix(job.kernels) && gpu.kernel_us > 0;
  return apart ? std::min(w.kernels.attention_flops / w.tensor, w.flops) : 0;
}

/// FlashAttention's rate, relative to that of large matrix products. Programs with products in 8
/// bits are Transformer Engine's, whose attention, cuDNN's, has instructions of warp groups.
double attention_share(const job_spec& job, const gpu_type& gpu) {
  const double capability = gpu.compute_capability.value_or(0);
  const bool of_warp_groups = capability >= 9 && capability < 12;
  const bool without = of_warp_groups && !has_fp8(job, gpu);
  return constants.flash_speed * (without ? constants.warp_share : 1);
}

}  // namespace

bool has_single_precision(const job_spec& job) {
  return job.memory && is_single(*job.memory);
}

double flops_s(const gpu_type& gpu) {
  return (gpu.fp16_tflops > 0 ? gpu.fp16_tflops : gpu.fp32_tflops) * 1e12 * gpu.efficiency;
}

double flops_s(const job_spec& job, const gpu_type& gpu) {
  if (has_fp8(job, gpu)) return *gpu.fp8_tflops * 1e12 * gpu.efficiency;
  if (gpu.kernel_us == 0 || !has_single_precision(job)) return flops_s(gpu);
  const bool tf32 = job.memory->precision == "tf32" && gpu.tf32_tflops > 0;
  return (tf32 ? gpu.tf32_tflops : gpu.fp32_tflops) * 1e12 * gpu.fp32_efficiency;
}

double attention_flops_s(const job_spec& job, const gpu_type& gpu) {
  const bool apart = has_no_matrix(job.kernels) && gpu.kernel_us > 0;
  return wide_flops_s(job, gpu) * (apart ? attention_share(job, gpu) : 1);
}

double launch_s(const job_spec& job, const gpu_type& gpu) {
  if (gpu.kernel_us == 0) return 0;
  return (is_eager(job) ? constants.eager_launch_us : constants.launch_us) * 1e-6;
}

bool stops_early(const job_spec& job, const gpu_type& gpu) {
  return gpu.kernel_us > 0 && !is_fused(job);
}

double ring_share(const gpu_type& gpu) {
  return gpu.kernel_us > 0 ? 0.8 : 1;
}

// The formulas of docs/planners/cost_model.md, "Kernels". A matrix product loses `kernel_us`
// whatever its size, which is the same as an efficiency that grows with its work; FlashAttention is
// a kernel of its own with a rate of its own; elementwise operations are bound by memory; and a
// forward cannot be faster than the host launches its kernels. They are added and not overlapped,
// since each operation waits for the one before. Where FlashAttention keeps no attention matrix,
// the backward repeats a part of attention's forward.
kernel_times time_kernels(const job_spec& job, const gpu_type& gpu, const gpu_work& w,
                          double backward) {
  const double memory =
      gpu.memory_gbytes_s * 1e9 * (gpu.kernel_us > 0 ? constants.memory_share : 1);  // bytes/s
  kernel_times t;
  const double attention = attention_flops(job, gpu, w);
  const double attention_s =
      w.rows * attention / (wide_flops_s(job, gpu) * attention_share(job, gpu));
  t.forward_s = w.rows * products_s(job, gpu, w, attention) + attention_s;
  t.backward_s = backward * t.forward_s;
  if (memory > 0) t.update_s = constants.update_bytes * w.parameters / memory;
  if (gpu.kernel_us == 0) return t;
  t.forward_s += w.kernels.products * gpu.kernel_us * 1e-6;
  if (memory > 0) t.forward_s += w.rows * elementwise_bytes(job, w) / memory;
  // The host's launches are a lower limit, however fast the GPU is.
  const double launches = w.kernels.products * launch_s(job, gpu);
  const double passes =
      job.kernels == "eager" ? constants.eager_backward_launches : constants.backward_launches;
  // Where all is computed again, a backward has a forward's launches besides.
  const double back = (passes + std::max(0.0, backward - 2)) * launches;
  t.backward_s = backward * t.forward_s;
  t.backward_idle_s = std::max(0.0, back - t.backward_s);
  t.forward_idle_s = std::max(0.0, launches - t.forward_s);
  t.backward_s += t.backward_idle_s + constants.flash_recompute * attention_s;
  t.forward_s += t.forward_idle_s;
  // Gradient norms, loss scaling, the loader; besides, a launch per parameter where each has its
  // own.
  t.update_s += updates_one_by_one(job, w) ? w.kernels.products * constants.eager_update_us * 1e-6
                                           : constants.update_s;
  return t;
}

}  // namespace troupe::planners
