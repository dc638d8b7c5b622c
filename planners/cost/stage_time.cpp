#include "planners/cost/stage_time.hpp"

#include <algorithm>
#include <cmath>

#include "planners/cost/overlap.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/model/job_device.hpp"
#include "planners/model/job_memory.hpp"

namespace troupe::planners {

namespace {

bool keeps_activations(const job_spec& job) {
  return recomputation_of(job) == recomputation::none;
}

/// A stage as parts that profiles have. Pieces alternate: attention (even), MLP (odd).
stage_make make_of(const job_spec& job, const stage_part& p, bool first, bool last) {
  const auto attentions = (p.first + p.count + 1) / 2 - (p.first + 1) / 2;
  return {attentions, p.count - attentions, first, last, keeps_activations(job), p.tensor_parallel};
}

/// Replaces the cost model's times by measured ones. Returns whether they include all-reduces.
bool set_times(stage_costs& c, const device_profile& profile, const job_spec& job,
               const std::vector<stage_part>& parts, std::uint32_t stage, std::uint32_t rows) {
  const auto& m = job.model;
  const auto& p = parts[stage];
  const auto s = has_program_layers(m)
                     ? put_together(**layers_of(profile, m), m,
                                    {p.first, p.count, keeps_activations(job)}, rows)
                     : put_together(**sizes_of(profile, m), m.sequence,
                                    make_of(job, p, stage == 0, stage + 1 == parts.size()), rows);
  c.forward_s = s.forward_s;
  c.recompute_s = s.recompute_s;
  c.backward_s = s.backward_s;
  c.update_s = s.update_s;
  c.gradients_s = s.gradients_s;
  return s.with_sums;
}

/// The part of collectives of GPUs that share a stage that is not hidden, if the job overlaps them
/// with the products they belong to: in as many pieces as there are GPUs.
double collectives_s(const job_spec& job, double all_s, double work_s, std::uint32_t gpus) {
  return job.pipeline.overlap.value_or(false) ? left_of_collective_s(all_s, work_s, gpus) : all_s;
}

/// GPUs that share a stage all-reduce once in every sublayer's forward and once in its backward: as
/// measured, or as a ring. The forward's all-reduces have the transferred precision; a GPU's
/// gradients are in half precision, unless all of the job's numbers are in single. While the host
/// launches kernels, idle GPUs (`kernels`) sum.
void add_sums(stage_costs& c, const job_spec& job, const gpu_type& gpu, const stage_part& p,
              std::uint32_t rows, double width, const link& inside, const kernel_times& kernels) {
  const auto t = p.tensor_parallel;
  if (t <= 1) return;
  const double part = 1.0 / context_parallel_of(job.pipeline);  // of each sequence
  const auto sums_s = [&](double each) {
    return p.count * node_sum_s(measured_sums(job, gpu), inside, gpu, ring_share(gpu), t,
                                part * rows * p.output_bytes * each);
  };
  const double work_s = c.forward_s, backward_work_s = c.backward_s;
  const double forward_sums_s = collectives_s(job, sums_s(width), work_s, t);
  const double forward_s = std::max(0.0, forward_sums_s - kernels.forward_idle_s);
  c.forward_s += forward_s;
  if (c.recompute_s > 0) c.recompute_s += forward_s;
  constexpr double half = 2;
  const double gradients =
      has_single_precision(job) ? width : device_facts_of(job).bytes_per_value / half;
  double backward_s = collectives_s(job, sums_s(gradients), backward_work_s, t);
  if (recomputation_of(job) == recomputation::layers) backward_s += forward_sums_s;
  c.backward_s += std::max(0.0, backward_s - kernels.backward_idle_s);
}

/// The ring of keys and values, once in a forward, and twice in a backward: they go around again,
/// and their gradients with them.
void add_context_ring(stage_costs& c, const job_spec& job, const gpu_type& gpu,
                      const gpu_work& work, const stage_part& p, const link& over) {
  const double gpus = context_parallel_of(job.pipeline);
  if (gpus <= 1) return;
  const auto attentions = (p.first + p.count + 1) / 2 - (p.first + 1) / 2;
  const double once_s = context_ring_s(job, gpu, work, attentions, {gpus, over, work.rows * gpus});
  c.forward_s += once_s;
  if (c.recompute_s > 0) c.recompute_s += once_s;
  c.backward_s += 2 * once_s;
}

/// The work of each GPU of a stage. LoRA trains few parameters, and with ZeRO each pipeline updates
/// a part of them.
gpu_work work_of(const job_spec& job, const stage_part& p, std::uint32_t rows,
                 std::uint32_t pipelines, bool divided) {
  gpu_work w{p.flops,
             p.parameters,
             double{1} * p.tensor_parallel,
             double{1} * rows / context_parallel_of(job.pipeline),
             p.kernels,
             divided || p.tensor_parallel > 1};
  if (!job.memory) return w;
  if (p.last) w.head_flops = head_flops(job.model) / (divides_words(job) ? w.tensor : 1);
  if (job.memory->lora_rank > 0)
    w.parameters *= trained_parameters(job) / shape_of(job.model).parameters;
  if (job.memory->zero > 0) w.parameters /= pipelines;
  return w;
}

double tied_parameters(const model& m) {
  return has_program_layers(m) ? m.tied_parameters.value_or(0)
                               : double{1} * m.vocabulary * m.hidden;
}

/// ZeRO-3 gathers the weights twice and scatters the gradients: 1.5 times the bytes.
double exchanged_parameters(const job_spec& job, const stage_part& p) {
  if (!job.memory) return p.parameters;
  const double trained = p.parameters * trained_parameters(job) / shape_of(job.model).parameters;
  return job.memory->zero == 3 ? 0.5 * trained + p.parameters : trained;
}

}  // namespace

double layers_again_s(const job_spec& job, const gpu_type& gpu, gpu_work w, bool head) {
  if (head) {
    w.flops -= head_flops(job.model) / (divides_words(job) ? w.tensor : 1);
    w.head_flops = 0;
    w.kernels.products -= job.model.operators.empty() ? 1 : 0;
    w.kernels.logits = 0;
  }
  if (stops_early(job, gpu)) {
    w.flops -= w.kernels.last_flops / w.tensor;
    w.kernels.products -= w.kernels.last_products;
  }
  return time_kernels(job, gpu, w, 0).forward_s;
}

double transferred_width(const job_spec& job, bool profiled) {
  constexpr std::uint32_t single = 4;
  const bool real = profiled || device_facts_of(job).bytes_per_sent_value == single;
  return real || has_program_layers(job.model) || has_single_precision(job) ? 2 : 1;
}

double emulated_speed(const cluster& c, node_index node, const job_spec& job) {
  return device_facts_of(job).is_host_core ? c.nodes[node].emulate_speed : 1;
}

double flops_s(const cluster& c, node_index node, const job_spec& job) {
  const auto& gpu = c.gpu_of(node);
  const auto* p = profile_of(job, gpu);
  return (p ? profiled_flops_s(*p, job.model) : flops_s(job, device_of(job, gpu))) *
         emulated_speed(c, node, job);
}

gpu_type device_of(const job_spec& job, const gpu_type& gpu) {
  const auto kind = device_facts_of(job);
  if (!kind.is_host_core) return gpu;
  auto core = gpu;
  core.name = kind.name;
  core.fp16_tflops = core.fp32_tflops = 0.1;
  core.memory_gbytes_s = 10;
  core.efficiency = 0.5;
  core.kernel_us = 0;
  return core;
}

const std::vector<all_reduce_rate>& measured_sums(const job_spec& job, const gpu_type& gpu) {
  static const std::vector<all_reduce_rate> none;
  const auto* p = sums_profile_of(job, gpu);
  return p ? p->copies.all_reduces : none;
}

double ring_s(double bytes, double members, double bytes_s, double latency_s, double rings) {
  return 2 * (members - 1) / members * bytes * rings / bytes_s + 2 * (members - 1) * latency_s;
}

// In order of trust: the job's own measured times, a profile's, the cost model's. Bytes always come
// from the model, as profiles have only times.
stage_costs costs_of_stage(const job_spec& job, const gpu_type& gpu,
                           const std::vector<stage_part>& parts, std::uint32_t stage,
                           std::uint32_t rows, const link& inside, std::uint32_t pipelines,
                           const link& context) {
  const auto stages = parts.size();
  const auto how = recomputation_of(job);
  const bool last = stage + 1 == stages, recomputes = how == recomputation::stages && !last;
  if (job.slots)
    return {job.slots->forward, recomputes ? job.slots->recompute : 0, job.slots->backward};
  if (job.train && job.train->costs.size() == stages) return job.train->costs[stage];
  const cost_constants k;
  const auto& p = parts[stage];
  stage_costs c;
  const auto work = work_of(job, p, rows, pipelines, stages > 1);
  const auto times = time_kernels(job, gpu, work, backward_of_weights(job, k.backward));
  c.forward_s = times.forward_s;
  c.recompute_s = recomputes ? c.forward_s : 0;
  c.backward_s = times.backward_s;
  c.update_s = times.update_s;
  const auto* profile = profile_of(job, gpu);
  const bool has_sums = profile && set_times(c, *profile, job, parts, stage, rows);
  if (how == recomputation::layers) {
    c.backward_s += profile ? c.forward_s : layers_again_s(job, gpu, work, p.last);
    c.recompute_s = 0;
  }
  const double width = transferred_width(job, profile != nullptr);
  if (!has_sums) add_sums(c, job, gpu, p, rows, width, inside, profile ? kernel_times{} : times);
  add_context_ring(c, job, gpu, work, p, context);
  c.activation_bytes = static_cast<std::uint64_t>(
      std::llround(rows * p.output_bytes * width / context_parallel_of(job.pipeline)));
  if (job.model.needs_norm.value_or(false)) c.norms_s = 0;
  c.gradient_bytes = static_cast<std::uint64_t>(
      std::llround(k.gradient_bytes * exchanged_parameters(job, p) * width));
  if (job.model.tied_head && stages > 1 && (stage == 0 || last))
    c.tied_bytes = static_cast<std::uint64_t>(
        std::llround(k.gradient_bytes * tied_parameters(job.model) * width /
                     (divides_words(job) ? p.tensor_parallel : 1)));
  return c;
}

void slow_down(stage_costs& costs, double speed) {
  for (auto* s : {&costs.forward_s, &costs.recompute_s, &costs.backward_s, &costs.update_s,
                  &costs.gradients_s})
    *s /= speed;
  if (costs.norms_s) *costs.norms_s /= speed;
}

stage_costs costs_on_node(const cluster& c, node_index node, const job_spec& job,
                          const std::vector<stage_part>& parts, std::uint32_t stage,
                          std::uint32_t rows, std::uint32_t pipelines) {
  const auto& n = c.nodes[node];
  const auto ring =
      context_link(n, parts[stage].tensor_parallel, context_parallel_of(job.pipeline));
  auto costs = costs_of_stage(job, device_of(job, c.gpus[n.gpu]), parts, stage, rows, n.intra,
                              pipelines, ring);
  slow_down(costs, emulated_speed(c, node, job));
  return costs;
}

}  // namespace troupe::planners
