#include "planners/cost/kernel_time.hpp"

#include <algorithm>

namespace troupe::planners {

namespace {

constexpr kernel_constants constants;

bool has_single_precision(const job_spec& job) {
  return job.memory && is_single(*job.memory);
}

double memory_bytes_s(const gpu_type& gpu) {
  return gpu.memory_gbytes_s * 1e9 * (gpu.kernel_us > 0 ? constants.memory_share : 1);
}

/// One kernel for each operation, whatever attention's is.
bool is_eager(const job_spec& job) {
  return job.kernels == "eager" || job.kernels == "sdpa";
}

/// Of a forward of one sample.
double elementwise_bytes(const job_spec& job, const gpu_work& w) {
  const auto& k = constants;
  const bool fused_layers = job.kernels == "flash";
  const double passes =
      (k.divided_passes / w.tensor + k.whole_passes) * (fused_layers ? k.flash_share : 1);
  const double over_matrix = has_no_matrix(job.kernels) ? 0
                             : is_eager(job)            ? k.eager_matrix_passes
                                                        : k.matrix_passes;
  const double numbers = w.kernels.stream * passes + w.kernels.matrices / w.tensor * over_matrix;
  const double logit = job.kernels == "sdpa" ? k.loss_by_operations_bytes : k.logit_bytes;
  return (has_single_precision(job) ? 4 : 2) * numbers + logit * w.kernels.logits;
}

double update_overhead_s(const job_spec& job, const gpu_work& w) {
  if (!is_eager(job)) return constants.update_s;
  return w.kernels.products * constants.eager_update_us * 1e-6;
}

}  // namespace

double flops_s(const gpu_type& gpu) {
  return (gpu.fp16_tflops > 0 ? gpu.fp16_tflops : gpu.fp32_tflops) * 1e12 * gpu.efficiency;
}

double flops_s(const job_spec& job, const gpu_type& gpu) {
  if (gpu.kernel_us == 0 || !has_single_precision(job)) return flops_s(gpu);
  const bool tf32 = job.memory->precision == "tf32" && gpu.tf32_tflops > 0;
  return (tf32 ? gpu.tf32_tflops : gpu.fp32_tflops) * 1e12 * gpu.fp32_efficiency;
}

double launch_s(const job_spec& job, const gpu_type& gpu) {
  if (gpu.kernel_us == 0) return 0;
  return (is_eager(job) ? constants.eager_launch_us : constants.launch_us) * 1e-6;
}

double ring_share(const gpu_type& gpu) {
  return gpu.kernel_us > 0 ? 0.8 : 1;
}

kernel_times time_kernels(const job_spec& job, const gpu_type& gpu, const gpu_work& w,
                          double backward) {
  const double speed = flops_s(job, gpu), memory = memory_bytes_s(gpu);
  kernel_times t;
  t.forward_s = w.rows * w.flops / speed;
  t.backward_s = backward * t.forward_s;
  if (memory > 0) t.update_s = constants.update_bytes * w.parameters / memory;
  if (gpu.kernel_us == 0) return t;
  t.forward_s += w.kernels.products * gpu.kernel_us * 1e-6;
  if (memory > 0) t.forward_s += w.rows * elementwise_bytes(job, w) / memory;
  // The least that a micro-batch's forward takes, however fast the GPU.
  const double launches = w.kernels.products * launch_s(job, gpu);
  t.backward_s = std::max(backward * t.forward_s, backward * launches);
  if (has_no_matrix(job.kernels))
    t.backward_s +=
        constants.flash_recompute * w.rows * w.kernels.attention_flops / w.tensor / speed;
  t.forward_s = std::max(t.forward_s, launches);
  t.update_s += update_overhead_s(job, w);
  return t;
}

}  // namespace troupe::planners
