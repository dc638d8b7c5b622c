#include "planners/cost/program_time.hpp"

#include <algorithm>
#include <cmath>

#include "planners/cost/overlap.hpp"
#include "planners/cost/slowest_link.hpp"
#include "planners/devices/node_sums.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {
namespace {

/// The slowest GPUs and links of an allocation: mixed types run at the speed of the slowest.
struct topology {
  kernel_times kernels;         // of the slowest GPU without a profile
  profiled_iteration profiled;  // on the slowest GPU with a profile
  double cost_per_hour = 0;
  std::uint32_t largest_share = 0;
  std::size_t nodes = 1, datacenters = 1;
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
  replica_batch batch;
  std::uint32_t tensor = 1;
  gpu_work work;
  double backward = 2;  // forwards of a backward, without those that are computed again
  bool again = false;   // are all layers computed again?
};

kernel_times times_of(const job_spec& job, const gpu_type& gpu, const replica& r) {
  auto t = time_kernels(job, gpu, r.work, r.backward);
  // Without kernel_us a program's efficiency is that of whole forwards.
  if (r.again) t.backward_s += layers_again_s(job, gpu, r.work, gpu.kernel_us > 0);
  return t;
}

void slow_to(kernel_times& slowest, const kernel_times& t) {
  slowest.forward_s = std::max(slowest.forward_s, t.forward_s);
  slowest.backward_s = std::max(slowest.backward_s, t.backward_s);
  slowest.update_s = std::max(slowest.update_s, t.update_s);
  slowest.forward_idle_s = std::min(slowest.forward_idle_s, t.forward_idle_s);
  slowest.backward_idle_s = std::min(slowest.backward_idle_s, t.backward_idle_s);
}

topology topology_of(const cluster& c, const job_spec& job, const replica& r,
                     const allocation& where, const cost_constants& k) {
  constexpr double none = std::numeric_limits<double>::infinity();
  topology t;
  t.kernels.forward_idle_s = t.kernels.backward_idle_s = none;
  std::vector<std::uint32_t> datacenters;
  for (const auto& share : where) {
    const auto& n = c.nodes[share.node];
    const auto& gpu = c.gpus[n.gpu];
    const auto measured =
        profiled_iteration_of(job, gpu, r.batch.microbatches, r.batch.rows, r.tensor);
    if (measured.s > t.profiled.s) t.profiled = measured;
    if (measured.s == 0) slow_to(t.kernels, times_of(job, gpu, r));
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
  t.nodes = where.size(), t.datacenters = datacenters.size();
  t.one_node = t.nodes <= 1;
  t.one_datacenter = t.datacenters <= 1;
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

/// Latencies that a sharded program's micro-batch waits for. It gathers each layer's weights (with
/// ZeRO-3 for the backward, too) and scatters its gradients, over a ring of k members each time,
/// and NCCL's take k - 1 steps for that. Of the ring's hops each node has one to the next, and each
/// datacenter.
double exposed_latency_s(const job_spec& job, const topology& t, double members) {
  const double collectives = job.memory->zero == 3 ? 3 : 2;
  const double layers = job.model.operators.empty()
                            ? job.model.layers
                            : static_cast<double>(job.model.operators.size());
  const double wide = t.one_datacenter ? 0 : static_cast<double>(t.datacenters);
  const double between =
      t.one_node ? 0 : std::max(0.0, std::min(static_cast<double>(t.nodes), members) - wide);
  const double inside = std::max(0.0, members - between - wide);
  return collectives * layers *
         (inside * t.intra.latency_s() + between * t.inter_datacenter.latency_s() +
          wide * t.inter.latency_s());
}

/// How much longer `work_s` takes as collectives of `whole_s` run beside it: they take a part of
/// the GPU's multiprocessors and of its memory's bandwidth; never less than what is too long to be
/// hidden.
double beside_work_s(double whole_s, double work_s, const cost_constants& k) {
  return std::max(k.hidden_share * whole_s, whole_s - work_s);
}

/// The fullest replica: ceil(B / d) samples, which all others wait for.
replica replica_of(const job_spec& job, const plan& how, const model_shape& shape,
                   const cost_constants& k) {
  const double tensor = how.tensor_parallel;
  const double context = context_parallel_of(job.pipeline);
  replica r;
  r.batch = batch_of_replica(job, static_cast<std::uint32_t>(how.data_parallel / context),
                             how.microbatches);
  r.tensor = how.tensor_parallel;
  r.backward = backward_of_weights(job, k.backward);
  r.again = job.memory && job.memory->checkpointing == "full";
  const double trained = job.memory ? trained_parameters(job) : shape.parameters;
  const double shards = job.memory && job.memory->zero > 0 ? how.data_parallel : 1;
  r.work = {shape.forward_flops / tensor,
            trained / tensor / shards,
            tensor,
            r.batch.rows / context,
            shape.kernels,
            how.tensor_parallel > 1};
  r.work.head_flops = head_flops(job.model) / tensor;
  r.work.kernels.logits /= tensor;
  return r;
}

/// Bytes that rings over all nodes, in the allocation's order, send between datacenters.
datacenter_traffic traffic_of_rings(const cluster& c, const allocation& where, double bytes) {
  datacenter_traffic all;
  for (std::size_t i = 0; i < where.size(); ++i) {
    const auto from = c.nodes[where[i].node].datacenter;
    const auto to = c.nodes[where[(i + 1) % where.size()].node].datacenter;
    if (from != to) all[{from, to}] += static_cast<std::uint64_t>(std::llround(bytes));
  }
  return all;
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
  const double m = r.batch.microbatches;
  const auto t = topology_of(c, job, r, where, k);

  iteration_estimate e;
  double backward_s = t.kernels.backward_s;  // of the last micro-batch
  double update_s = t.kernels.update_s;
  e.compute_s = m * (t.kernels.forward_s + backward_s) + update_s;
  const bool measured = t.profiled.s > e.compute_s;
  if (measured) {
    e.compute_s = t.profiled.s;
    update_s = 0;  // it is in there
    const double backward = backward_forwards(job, k.backward);
    backward_s = e.compute_s * backward / (1 + backward) / m;
  }
  // Relative to half precision.
  const double width = transferred_width(job, t.profiled.s > 0);
  if (how.tensor_parallel > 1 && !(measured && t.profiled.with_sums)) {
    const auto span = span_of_groups(c, where, how.tensor_parallel, how.data_parallel);
    const auto& over = t.between(span.in_node, span.in_datacenter);
    const double each = width * r.work.rows * shape.reduced_bytes / std::max(shape.reduces, 1.0);
    const double one_s = span.in_node ? sum_in_node_s(each, tensor, t)
                                      : ring_over_s(over, each, tensor, 1, t.largest_share);
    // Forward, again where it is recomputed, and backward. While the host launches, idle GPUs sum.
    const double forward_s = shape.reduces * one_s, backward_sums_s = (r.again ? 2 : 1) * forward_s;
    const auto beyond = [&](double s, double idle_s) {
      return measured ? s : std::max(0.0, s - idle_s);
    };
    e.tensor_s = m * (beyond(forward_s, t.kernels.forward_idle_s) +
                      beyond(backward_sums_s, t.kernels.backward_idle_s));
    if (job.pipeline.overlap.value_or(false))
      e.tensor_s = left_of_collective_s(e.tensor_s, e.compute_s - update_s, tensor);
  }
  double ring_bytes = 0;
  if (how.data_parallel > 1) {
    // Each rank of the tensor groups has its own ring; those of one node share its outgoing link.
    const double rings = t.one_node ? 1 : std::min(how.tensor_parallel, t.largest_share);
    // ZeRO-3 gathers the weights twice and scatters the gradients: 1.5 times the bytes.
    const bool gathers = job.memory && job.memory->zero == 3;
    const double trained = job.memory ? trained_parameters(job) : shape.parameters;
    const double bytes =
        width * k.gradient_bytes * (gathers ? 0.5 * trained + shape.parameters : trained) / tensor;
    // From each member of the tensor groups' rings to the next, in all steps of a ring.
    ring_bytes =
        2 * (data - 1) / data * bytes * tensor * (job.memory && job.memory->zero >= 2 ? m : 1);
    const auto& over = t.between(false, t.one_datacenter);
    const double whole = t.one_node ? sum_in_node_s(bytes, data, t)
                                    : ring_over_s(over, bytes, data, rings, t.largest_share);
    if (job.memory && job.memory->zero >= 2)
      e.data_s = m * (beside_work_s(whole, (e.compute_s - update_s) / m, k) +
                      exposed_latency_s(job, t, data));
    else if (job.pipeline.overlap.value_or(false))
      e.data_s = left_of_sum_s(whole, {1, 1, backward_s}, k);
    else
      e.data_s = std::max(0.0, whole - k.overlap * backward_s);
  }
  if (!t.one_datacenter) {
    e.traffic = traffic_of_rings(c, where, ring_bytes);
    e.traffic_per_iteration = price_of(c, e.traffic);
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
