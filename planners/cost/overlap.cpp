#include "planners/cost/overlap.hpp"

#include <algorithm>

namespace troupe::planners {

double left_of_collective_s(double collective_s, double work_s, double pieces) {
  return std::max(0.0, collective_s - work_s) + std::min(collective_s, work_s) / pieces;
}

// Part k of the stage has its last gradient `in_order` steps of a part before part k - 1 has, and
// the sums are made one after the other in that order.
double left_of_sum_s(double sum_s, const sum_window& w, const cost_constants& k) {
  const double window_s = ((w.parts - 1) * w.in_order + 1) * w.step_s / w.parts;
  return std::max(k.hidden_share * sum_s, sum_s - window_s);
}

double context_ring_s(const job_spec& job, const gpu_type& gpu, const gpu_work& w,
                      double attentions, const context_ring& r) {
  if (r.gpus <= 1 || attentions <= 0) return 0;
  constexpr double keys_and_values = 2, half = 2;
  const auto& m = job.model;
  const double bytes = r.rows * keys_and_values * half * kv_width(m) * m.sequence / r.gpus /
                       w.tensor;  // of a layer, of one GPU
  const double hop_s = bytes / r.over.bytes_s() + r.over.latency_us * 1e-6;
  const double attention_s = w.rows * w.kernels.attention_flops / attentions / w.tensor /
                             attention_flops_s(job, gpu) / r.gpus;
  return attentions * (r.gpus - 1) * std::max(0.0, hop_s - attention_s);
}

link context_link(const node& n, double tensor, double context) {
  if (tensor * context <= n.gpus || n.nvlink_domain) return n.intra;
  auto shared = n.inter;
  shared.gbps /= n.gpus;
  return shared;
}

}  // namespace troupe::planners
