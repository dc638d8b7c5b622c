#include "planners/pipeline_costs.hpp"

#include <algorithm>
#include <cmath>

#include "planners/cost_model.hpp"
#include "planners/profile.hpp"

namespace troupe::planners {

namespace {

double flops_s(const gpu_type& gpu) {
  return (gpu.fp16_tflops > 0 ? gpu.fp16_tflops : gpu.fp32_tflops) * 1e12 * gpu.efficiency;
}

/// As measured, in place of the cost model's. GPUs that share a stage have equal parts of its work.
void set_times(stage_costs& c, const device_profile& profile, const job_spec& job,
               const std::vector<stage_part>& parts, std::uint32_t stage, std::uint32_t rows) {
  const auto& m = job.model;
  const double share = 1.0 / std::max(job.pipeline.tensor_parallel, 1u);
  const auto& p = parts[stage];
  stage_make made;
  made.attentions = (p.first + p.count + 1) / 2 - (p.first + 1) / 2;
  made.mlps = p.count - made.attentions;
  made.embeds = stage == 0;
  made.predicts = stage + 1 == parts.size();
  made.keeps = !job.pipeline.recompute;
  const auto s = put_together(**sizes_of(profile, m), m.sequence, made, rows);
  c.forward_s = share * s.forward_s;
  c.recompute_s = share * s.recompute_s;
  c.backward_s = share * s.backward_s;
  c.update_s = share * s.update_s;
  c.gradients_s = share * s.gradients_s;
}

/// How GPUs of a node sum; empty: nobody measured it.
const std::vector<all_reduce_rate>& measured_sums(const job_spec& job, const gpu_type& gpu) {
  static const std::vector<all_reduce_rate> none;
  const auto* p = sums_profile_of(job, gpu);
  return p ? p->copies.all_reduces : none;
}

}  // namespace

pipeline_costs costs_in_slots(const job_spec& job) {
  const auto& s = *job.slots;
  return {s.forward, job.pipeline.recompute ? s.recompute : 0, s.backward, s.lan, s.wan, 0};
}

batch_split split_batch(const job_spec& job, std::uint32_t stages, std::uint32_t pipelines) {
  if (job.slots) return {std::max(job.pipeline.microbatches, 1u), 1};
  if (pipelines == 0 || job.global_batch % pipelines != 0) return {};
  const auto each = job.global_batch / pipelines;
  if (const auto rows = job.pipeline.rows; rows > 0) {
    if (each % rows != 0) return {};
    return {each / rows, rows};
  }
  auto m = job.pipeline.microbatches ? job.pipeline.microbatches : job.microbatches.value_or(0);
  if (m == 0)
    for (m = std::min(each, 4 * stages); each % m != 0;) --m;
  if (each % m != 0) return {};
  return {m, each / m};
}

stage_load load_of(const job_spec& job, const batch_split& split, double most_bytes) {
  const auto most = job.pipeline.most_held;
  return {split.rows, most ? std::min(most, split.microbatches) : split.microbatches, most_bytes,
          job.pipeline.recompute};
}

gpu_type device_of(const job_spec& job, const gpu_type& gpu) {
  if (!job.train || job.train->device != "cpu") return gpu;
  auto core = gpu;
  core.name = "cpu";
  core.fp16_tflops = core.fp32_tflops = 0.1;
  core.memory_gbytes_s = 10;
  core.efficiency = 0.5;
  return core;
}

namespace {

/// GPUs that share a stage sum once in every sublayer's forward, and once in its backward: as was
/// measured, or as a ring. The forward's sums are as wide as what travels; a GPU's gradients are in
/// half precision.
void add_sums(stage_costs& c, const job_spec& job, const gpu_type& gpu, const stage_part& p,
              std::uint32_t rows, double width, const link& inside) {
  const auto t = job.pipeline.tensor_parallel;
  if (t <= 1) return;
  const auto sums_s = [&](double each) {
    return p.count * sum_s(measured_sums(job, gpu), inside, t, rows * p.output_bytes * each);
  };
  const bool cpu = job.train && job.train->device == "cpu";
  c.forward_s += sums_s(width);
  if (c.recompute_s > 0) c.recompute_s += sums_s(width);
  c.backward_s += sums_s(cpu ? 2 : 1);
}

}  // namespace

stage_costs costs_of_stage(const job_spec& job, const gpu_type& gpu,
                           const std::vector<stage_part>& parts, std::uint32_t stage,
                           std::uint32_t rows, const link& inside) {
  const auto stages = parts.size();
  const bool last = stage + 1 == stages, recomputes = job.pipeline.recompute && !last;
  if (job.slots)
    return {job.slots->forward, recomputes ? job.slots->recompute : 0, job.slots->backward};
  if (job.train && job.train->costs.size() == stages) return job.train->costs[stage];
  const cost_constants k;
  const auto& p = parts[stage];
  stage_costs c;
  c.forward_s = rows * p.flops / flops_s(gpu);
  c.recompute_s = recomputes ? c.forward_s : 0;
  c.backward_s = k.backward * c.forward_s;
  // AdamW reads weight, gradient and two moments in fp32 and writes all but the gradient.
  if (gpu.memory_gbytes_s > 0) c.update_s = 28 * p.parameters / (gpu.memory_gbytes_s * 1e9);
  const auto* profile = profile_of(job, gpu);
  if (profile) set_times(c, *profile, job, parts, stage, rows);
  // Half precision travels; between stages that really train, single.
  const bool real =
      profile || (job.train && (job.train->device == "cpu" || job.train->device == "cuda"));
  const double width = real ? 2 : 1;
  add_sums(c, job, gpu, p, rows, width, inside);
  c.activation_bytes = static_cast<std::uint64_t>(std::llround(rows * p.output_bytes * width));
  c.gradient_bytes =
      static_cast<std::uint64_t>(std::llround(k.gradient_bytes * p.parameters * width));
  if (job.model.tied_head && stages > 1 && (stage == 0 || last))
    c.tied_bytes = static_cast<std::uint64_t>(std::llround(
        k.gradient_bytes * double{1} * job.model.vocabulary * job.model.hidden * width));
  return c;
}

namespace {

const wan_link* named_link(const cluster& c, std::uint32_t a, std::uint32_t b) {
  for (const auto& w : c.wan)
    if ((w.a == a && w.b == b) || (w.a == b && w.b == a)) return &w;
  return nullptr;
}

}  // namespace

std::uint32_t connections_between(const cluster& c, std::uint32_t a, std::uint32_t b,
                                  std::uint32_t wished) {
  const auto* w = named_link(c, a, b);
  if (wished > 0 || !w || w->connection_gbps <= 0) return std::max(wished, 1u);
  return static_cast<std::uint32_t>(std::max(1.0, std::ceil(w->node_gbps / w->connection_gbps)));
}

link wan_between(const cluster& c, std::uint32_t a, std::uint32_t b, std::uint32_t wished) {
  const cost_constants k;
  const auto* w = named_link(c, a, b);
  if (!w) return {"wan", k.wan_gbps, k.wan_latency_us};
  const double most =
      w->connection_gbps > 0 ? connections_between(c, a, b, wished) * w->connection_gbps : 1e300;
  return {"wan", std::min(w->node_gbps, most), w->rtt_ms * 1e3 / 2};
}

double communication_to_compute(const pipeline_costs& costs) {
  return costs.forward > 0 ? costs.wan / costs.forward : 0;
}

std::uint32_t cell_of(const pipeline_costs& costs, std::uint32_t pipelines) {
  const double c = std::ceil(communication_to_compute(costs) - 1e-9);
  const auto least = static_cast<std::uint32_t>(std::clamp(c, 1.0, static_cast<double>(pipelines)));
  auto cell = least;
  while (pipelines % cell > 0 && pipelines % cell < least) ++cell;
  return cell;
}

pipeline_costs costs_of(const cluster& c, const job_spec& job, const pipeline_layout& layout) {
  if (job.slots) return costs_in_slots(job);
  const auto rows = std::max(split_batch(job, layout.stages, layout.pipelines).rows, 1u);
  pipeline_costs out{0, 0, 0, 0, 0, 0};
  for (std::uint32_t s = 0; s < layout.stages; ++s) {
    for (std::uint32_t p = 0; p < layout.pipelines; ++p) {
      const auto& at = layout.at(p, s);
      // Peers mostly have the same GPU.
      if (p > 0 && c.nodes[at.node].gpu == c.nodes[layout.at(p - 1, s).node].gpu) continue;
      const auto x = costs_of_stage(job, device_of(job, c.gpu_of(at.node)), layout.parts, s, rows,
                                    c.nodes[at.node].intra);
      out.forward = std::max(out.forward, x.forward_s);
      out.recompute = std::max(out.recompute, x.recompute_s);
      out.backward = std::max(out.backward, x.backward_s);
      if (s + 1 == layout.stages) break;
      const auto from = layout.datacenter_of(s), to = layout.datacenter_of(s + 1);
      const double bytes = static_cast<double>(x.activation_bytes);
      if (from == to) {
        const auto& inter = c.nodes[at.node].inter;
        out.lan = std::max(out.lan, bytes / inter.bytes_s() + inter.latency_us * 1e-6);
      } else {
        const auto wan = wan_between(c, from, to, job.pipeline.connections);
        out.wan = std::max(out.wan, bytes / wan.bytes_s());
        out.wan_latency = std::max(out.wan_latency, wan.latency_us * 1e-6 + x.handling_s);
      }
    }
  }
  return out;
}

namespace {

/// Where all peers of a stage are GPUs of one node that sum among themselves: how they do, as
/// measured. Null: they are not, or nobody measured it, or hosts sum.
const std::vector<all_reduce_rate>* sums_of_peers(const cluster& c, const job_spec& job,
                                                  const pipeline_layout& layout,
                                                  std::uint32_t stage) {
  if (!job.train || job.train->device != "cuda") return nullptr;
  const auto node = layout.at(0, stage).node;
  for (std::uint32_t p = 1; p < layout.pipelines; ++p)
    if (layout.at(p, stage).node != node) return nullptr;
  const auto& sums = measured_sums(job, c.gpu_of(node));
  return sums.empty() ? nullptr : &sums;
}

}  // namespace

std::vector<double> exchanges_of(const cluster& c, const job_spec& job,
                                 const pipeline_layout& layout) {
  std::vector<double> out(layout.stages, 0.0);
  if (job.slots) return out;
  const auto last = layout.stages - 1;
  const auto rows = std::max(split_batch(job, layout.stages, layout.pipelines).rows, 1u);
  const auto costs = [&](std::uint32_t s) {
    const auto& gpu = c.gpu_of(layout.at(0, s).node);
    return costs_of_stage(job, device_of(job, gpu), layout.parts, s, rows);
  };
  const double n = layout.pipelines;
  // Every member sums a chunk: its parts come, and its sum goes.
  const auto reduce_s = [&](std::uint32_t s, double bytes) {
    if (const auto* sums = sums_of_peers(c, job, layout, s))
      return sum_s(*sums, {}, layout.pipelines, bytes);
    const auto& inter = c.nodes[layout.at(0, s).node].inter;
    return n == 1 ? 0 : 2 * (bytes * (n - 1) / n / inter.bytes_s() + inter.latency_us * 1e-6);
  };
  for (std::uint32_t s = 0; s < layout.stages; ++s) {
    const auto x = costs(s);
    const bool copy = s == last && s > 0;  // the first stage sums for both
    out[s] = reduce_s(s, static_cast<double>(x.gradient_bytes - (copy ? x.tied_bytes : 0)));
  }
  const double tied = static_cast<double>(costs(0).tied_bytes);
  if (tied == 0 || last == 0) return out;
  const auto from = layout.datacenter_of(0), to = layout.datacenter_of(last);
  const auto way = from == to ? c.nodes[layout.at(0, 0).node].inter
                              : wan_between(c, from, to, job.pipeline.connections);
  const double way_s = tied / way.bytes_s() + way.latency_us * 1e-6;
  // The last stage's part comes to the first, and the sum goes back.
  const double back_s = out[0] + way_s + std::max(0.0, costs(last).update_s - costs(0).update_s);
  out[last] = std::max(out[last], way_s + out[0] + way_s);
  out[0] = back_s;
  return out;
}

pipeline_shape shape_of(const cluster& c, const job_spec& job, const pipeline_layout& layout) {
  pipeline_shape shape;
  shape.stages = layout.stages;
  shape.pipelines = layout.pipelines;
  shape.microbatches = std::max(split_batch(job, layout.stages, layout.pipelines).microbatches, 1u);
  shape.stages_of_datacenter = layout.stages_of_datacenter;
  shape.recompute = job.pipeline.recompute;
  shape.costs = costs_of(c, job, layout);
  shape.cell = cell_of(shape.costs, shape.pipelines);
  if (job.pipeline.most_held) shape.most_held = job.pipeline.most_held;
  return shape;
}

}  // namespace troupe::planners
