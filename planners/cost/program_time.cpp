#include "planners/cost/program_time.hpp"

#include <algorithm>
#include <cmath>

#include "planners/cost/node_sums.hpp"
#include "planners/cost/profile.hpp"
#include "planners/cost/slowest_link.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {
namespace {

/// The slowest GPUs and links of an allocation: mixed types run at the speed of the slowest.
struct topology {
  kernel_times kernels;   // of the slowest GPU without a profile
  double profiled_s = 0;  // an iteration's work on the slowest GPU with a profile, alone
  double cost_per_hour = 0;
  std::uint32_t largest_share = 0;
  bool one_node = true, one_datacenter = true;
  slowest_link intra, inter;      // inter: between nodes
  slowest_link inter_datacenter;  // between nodes of one datacenter
  // All-reduces inside nodes by number of GPUs, of nodes where that is known; of others `intra`.
  std::vector<const std::vector<group_rate>*> groups;
  bool rings = false;
  // All-reduce rates of each node's GPUs; empty: not all of them were measured.
  std::vector<const std::vector<all_reduce_rate>*> sums;

  const slowest_link& between(bool same_node, bool same_datacenter) const {
    return same_node ? intra : same_datacenter ? inter_datacenter : inter;
  }
};

void limit_by_wan(topology& t, const cluster& c, std::uint32_t a, std::uint32_t b,
                  const cost_constants& k) {
  link wan{"wan", k.wan_gbps, k.wan_latency_us};
  if (const auto* w = wan_between(c, a, b))
    wan = {"wan", w->node_gbps, w->rtt_ms * 1e3 / 2, w->rates, w->flow_rates};
  t.inter.limit(wan);
}

/// The micro-batches of the fullest replica, and the work of one of its GPUs.
struct replica {
  double microbatches = 1, rows = 1;
  gpu_work work;
  double backward = 2;
};

void slow_to(kernel_times& slowest, const kernel_times& t) {
  slowest.forward_s = std::max(slowest.forward_s, t.forward_s);
  slowest.backward_s = std::max(slowest.backward_s, t.backward_s);
  slowest.update_s = std::max(slowest.update_s, t.update_s);
}

topology topology_of(const cluster& c, const job_spec& job, const replica& r,
                     const allocation& where, const cost_constants& k) {
  topology t;
  std::vector<std::uint32_t> datacenters;
  for (const auto& share : where) {
    const auto& n = c.nodes[share.node];
    const auto& gpu = c.gpus[n.gpu];
    if (const double alone_s = profiled_iteration_s(job, gpu, r.microbatches, r.rows); alone_s > 0)
      t.profiled_s = std::max(t.profiled_s, alone_s);
    else
      slow_to(t.kernels, time_kernels(job, gpu, r.work, r.backward));
    t.cost_per_hour += share.gpus * price_per_hour(c, share.node);
    t.largest_share = std::max(t.largest_share, share.gpus);
    if (const auto* p = sums_profile_of(job, gpu)) t.sums.push_back(&p->copies.all_reduces);
    if (const auto* rates = group_rates_of(n.intra, gpu)) {
      if (std::ranges::find(t.groups, rates) == t.groups.end()) t.groups.push_back(rates);
    } else {
      t.intra.limit(n.intra, ring_share(gpu));
      t.rings = true;
    }
    t.inter_datacenter.limit(n.inter);
    if (std::ranges::find(datacenters, n.datacenter) == datacenters.end())
      datacenters.push_back(n.datacenter);
  }
  if (t.sums.size() != where.size()) t.sums.clear();
  t.one_node = where.size() <= 1;
  t.one_datacenter = datacenters.size() <= 1;
  t.inter = t.inter_datacenter;
  for (std::size_t i = 0; i < datacenters.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) limit_by_wan(t, c, datacenters[i], datacenters[j], k);
  return t;
}

/// Whether every group of GPUs can be formed inside a node, and inside a datacenter.
struct group_span {
  bool in_node = true, in_datacenter = true;
};

/// For `groups` groups of `size` GPUs: each node (datacenter) has room for floor(GPUs / size) of
/// them.
group_span span_of_groups(const cluster& c, const allocation& where, std::uint32_t size,
                          std::uint32_t groups) {
  std::uint32_t in_nodes = 0, in_datacenters = 0;
  std::vector<std::uint32_t> gpus(c.datacenters.size());
  for (const auto& share : where) {
    const auto dc = c.nodes[share.node].datacenter;
    if (dc >= gpus.size()) gpus.resize(dc + 1);
    gpus[dc] += share.gpus;
    in_nodes += share.gpus / size;
  }
  for (const auto n : gpus) in_datacenters += n / size;
  return {in_nodes >= groups, in_datacenters >= groups};
}

/// A ring over a link; its step's tensor decides about the rate. `rings`: of a node, which share
/// the link; `flows`: GPUs of a node that send over it.
double ring_over_s(const slowest_link& over, double bytes, double members, double rings,
                   std::uint32_t flows) {
  return ring_s(bytes, members, over.bytes_s(bytes / members, flows), over.latency_s(), rings);
}

/// For groups inside one node: as measured on the slowest node, else by the rates of its kind, else
/// a ring.
double sum_in_node_s(double bytes, double members, const topology& t) {
  double slowest = 0;
  for (const auto* x : t.sums)
    slowest = std::max(slowest, sum_s(*x, {}, static_cast<std::uint32_t>(members), bytes));
  if (!t.sums.empty()) return slowest;
  for (const auto* x : t.groups) slowest = std::max(slowest, all_reduce_s(*x, members, bytes));
  if (t.rings) slowest = std::max(slowest, ring_over_s(t.intra, bytes, members, 1, 1));
  return slowest;
}

/// The fullest replica: ceil(B / d) samples, which all others wait for.
replica replica_of(const job_spec& job, const plan& how, const model_shape& shape,
                   const cost_constants& k) {
  const double tensor = how.tensor_parallel;
  const double samples = std::ceil(double{1} * job.global_batch / how.data_parallel);
  replica r;
  r.microbatches =
      std::clamp(double{1} * job.microbatches.value_or(1), 1.0, std::max(samples, 1.0));
  r.rows = samples / r.microbatches;
  r.backward = backward_forwards(job, k.backward);
  const double trained = job.memory ? trained_parameters(job) : shape.parameters;
  const double shards = job.memory && job.memory->zero > 0 ? how.data_parallel : 1;
  r.work = {shape.forward_flops / tensor, trained / tensor / shards, tensor, r.rows, shape.kernels};
  r.work.kernels.logits /= tensor;
  return r;
}

}  // namespace

// The table of docs/planners/cost_model.md, "A program": compute, then tensor-parallel all-reduces,
// then the part of the gradients' all-reduce that is not hidden. Added up, as each waits for the
// one before.
iteration_estimate estimate_iteration(const cluster& c, const job_spec& job, const plan& how,
                                      const allocation& where, const cost_constants& k) {
  const auto shape = shape_of(job.model);
  const double data = how.data_parallel, tensor = how.tensor_parallel;
  const auto r = replica_of(job, how, shape, k);
  const double m = r.microbatches, b = r.rows;
  const auto t = topology_of(c, job, r, where, k);

  iteration_estimate e;
  double backward_s = t.kernels.backward_s;  // of the last micro-batch
  double update_s = t.kernels.update_s;
  e.compute_s = m * (t.kernels.forward_s + backward_s) + update_s;
  if (const double measured_s = t.profiled_s / tensor; measured_s > e.compute_s) {
    e.compute_s = measured_s;
    update_s = 0;  // it is in there
    backward_s = measured_s * r.backward / (1 + r.backward) / m;
  }
  if (how.tensor_parallel > 1) {
    const auto span = span_of_groups(c, where, how.tensor_parallel, how.data_parallel);
    const auto& over = t.between(span.in_node, span.in_datacenter);
    const double each = b * shape.reduced_bytes / std::max(shape.reduces, 1.0);
    const double one_s = span.in_node ? sum_in_node_s(each, tensor, t)
                                      : ring_over_s(over, each, tensor, 1, t.largest_share);
    // Forward, again where it is recomputed, and backward.
    const bool again = job.memory && job.memory->checkpointing == "full";
    e.tensor_s = (again ? 3 : 2) * shape.reduces * m * one_s;
  }
  if (how.data_parallel > 1) {
    // Each rank of the tensor groups has its own ring; those of one node share its outgoing link.
    const double rings = t.one_node ? 1 : std::min(how.tensor_parallel, t.largest_share);
    // ZeRO-3 gathers the weights twice and scatters the gradients: 1.5 times the bytes.
    const bool gathers = job.memory && job.memory->zero == 3;
    const double trained = job.memory ? trained_parameters(job) : shape.parameters;
    const double bytes =
        k.gradient_bytes * (gathers ? 0.5 * trained + shape.parameters : trained) / tensor;
    const auto& over = t.between(false, t.one_datacenter);
    const double whole = t.one_node ? sum_in_node_s(bytes, data, t)
                                    : ring_over_s(over, bytes, data, rings, t.largest_share);
    e.data_s = std::max(0.0, whole - k.overlap * backward_s);
    // Every micro-batch before the last one gathers, too, hidden behind its own work.
    if (gathers) e.data_s += (m - 1) * std::max(0.0, whole - (e.compute_s - update_s) / m);
  }
  e.iteration_s = e.compute_s + e.tensor_s + e.data_s;
  e.samples_per_s = e.iteration_s > 0 ? job.global_batch / e.iteration_s : 0;
  e.cost_per_hour = t.cost_per_hour;
  return e;
}

std::vector<node_index> nodes_of_type(const cluster& c, gpu_index type) {
  std::vector<node_index> out;
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (c.nodes[n].gpu == type && c.nodes[n].gpus > 0) out.push_back(n);
  std::ranges::stable_sort(out, [&](node_index x, node_index y) {
    const auto &a = c.nodes[x], &b = c.nodes[y];
    return a.gpus != b.gpus ? a.gpus > b.gpus : a.datacenter < b.datacenter;
  });
  return out;
}

allocation pack(const cluster& c, const std::vector<node_index>& largest_first,
                std::uint32_t gpus) {
  allocation where;
  for (std::size_t i = 0; gpus > 0 && !largest_first.empty(); ++i) {
    const auto n = largest_first[i % largest_first.size()];
    const auto take = std::min(gpus, c.nodes[n].gpus);
    where.push_back({n, take});
    gpus -= take;
  }
  return where;
}

}  // namespace troupe::planners
