#include "planners/crius/cell_estimate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "messages/base/time.hpp"
#include "messages/domain/tensor_split.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/measured_memory.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/policy/adaptive_plan.hpp"

namespace troupe::planners {

namespace {

/// The largest divisor of n that is at most `max`.
std::uint32_t divisor_below(std::uint32_t n, std::uint32_t max) {
  auto m = std::min(n, max);
  while (n % m != 0) --m;
  return m;
}

// Times the plans of one Cell's stages. The paper profiles each stage on one GPU and interpolates
// the communication (Figure 10); here both come from the cost model, or from profiles where the
// cluster has some. A whole plan is not known yet, so what depends on other stages is assumed as
// planners/cost/layout.hpp lays them out when all stages have as many replicas: a pipeline's stages
// are neighbours on nodes. With S stages of p plans each this costs S p evaluations of the cost
// model and S p^2 transfers, instead of p^S plans.
class cell_timer {
 public:
  cell_timer(const cluster& c, const gpu_pool& pool, const job_spec& job, const cell_stages& cell)
      : cluster_{c},
        node_{c.nodes[pool.nodes.front()]},
        speed_{emulated_speed(c, pool.nodes.front(), job)},
        job_{as_scheduled(job)},
        stages_{cell.stages},
        chain_{job.model, divides_words(job)} {
    std::uint32_t widest = 1;
    // B = 4 * stages (section 5.1), or the largest divisor below of the samples per replica.
    for (const auto& s : stages_) gpus_ += s.gpus, widest = std::max(widest, s.gpus);
    const auto batch = job.global_batch;
    space_.microbatches = divisor_below(batch / std::gcd(batch, widest),
                                        static_cast<std::uint32_t>(4 * stages_.size()));
  }

  cell_space time() && {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      auto& plans = space_.plans.emplace_back();
      for (std::uint32_t t = 1; t <= stages_[i].gpus; t *= 2)
        plans.push_back(plan_of(i, stages_[i].gpus / t, t));
    }
    for (std::size_t i = 0; i < stages_.size(); ++i) add_sends(i);
    add_tails();
    return std::move(space_);
  }

 private:
  stage_plan plan_of(std::size_t i, std::uint32_t data, std::uint32_t tensor) const {
    stage_plan p;
    p.data = data;
    p.tensor = tensor;
    const auto& m = job_.model;
    const auto samples = job_.global_batch / space_.microbatches;
    if (samples % data != 0 || !splits_into(m, tensor)) return p;
    const batch_split batch{space_.microbatches, samples / data};
    const bool last = i + 1 == stages_.size(), alone = stages_.size() == 1;
    const auto& s = stages_[i];
    const auto part = part_of_stage(chain_, m, s.first, s.count, tensor, last);
    // The cost model only uses whether there are stages before and behind it.
    std::vector<stage_part> parts(alone ? 1 : 2);
    const std::uint32_t at = last && !alone ? 1 : 0;
    parts[at] = part;
    const auto& gpu = cluster_.gpus[node_.gpu];
    const auto& inside = tensor <= node_.gpus ? node_.intra : node_.inter;
    auto costs = costs_of_stage(job_, device_of(job_, gpu), parts, at, batch.rows, inside, data);
    slow_down(costs, speed_);
    p.backward_s = costs.backward_s;
    p.recompute_s = costs.recompute_s;
    p.work_s = costs.forward_s + costs.recompute_s + costs.backward_s;
    p.update_s = costs.update_s;
    p.sync_s = sync_s(p, static_cast<double>(costs.gradient_bytes));
    // GPUs of one node all-reduce the gradients directly, without copying them to their hosts.
    const bool direct = replicas_on_node(data) >= data && !measured_sums(job_, gpu).empty();
    if (data > 1 && !direct) p.update_s += costs.gradients_s;
    const auto behind = static_cast<std::uint32_t>(stages_.size() - 1 - i);
    p.bytes_per_gpu = stage_bytes_on(gpu, job_, part, load_of(job_, batch, behind),
                                     cluster_.settings.memory_headroom) +
                      guest_bytes(job_);
    p.fits = p.bytes_per_gpu < gpu.memory_bytes();
    return p;
  }

  /// GPUs of one pipeline, if every stage has `data` replicas.
  double pipeline_gpus(std::uint32_t data) const { return double{1} * gpus_ / data; }
  /// How many replicas of a stage are on one node then.
  double replicas_on_node(std::uint32_t data) const {
    return std::clamp(std::floor(node_.gpus / pipeline_gpus(data)), 1.0, double{1} * data);
  }

  /// Time in which the replicas of a stage sum `bytes` of gradients: each sums one chunk, which the
  /// others send it and get back. Inside a node as measured or by a ring; between nodes over the
  /// node's link, which its replicas share and which is otherwise idle.
  double sync_s(const stage_plan& p, double bytes) const {
    if (p.data <= 1) return 0;
    const double here = replicas_on_node(p.data);
    if (here >= p.data) {
      const auto& gpu = cluster_.gpus[node_.gpu];
      return node_sum_s(measured_sums(job_, gpu), node_.intra, gpu, 1, p.data, bytes);
    }
    const double sent = 2 * bytes / p.data * (p.data - here) * here;
    return sent / node_.inter.bytes_s(bytes / p.data) + 2 * node_.inter.latency_us * 1e-6;
  }

  /// GPUs of one pipeline that the stages before stage i have.
  double gpus_before(std::size_t i, std::uint32_t data) const {
    double sum = 0;
    for (std::size_t j = 0; j < i; ++j) sum += double{1} * stages_[j].gpus / data;
    return sum;
  }
  /// The link between stages i - 1 and i of a pipeline, if all stages have `data` replicas: inside
  /// a node if both are on it.
  const link& link_before(std::size_t i, std::uint32_t data) const {
    if (gpus_ <= node_.gpus) return node_.intra;
    const double first = gpus_before(i - 1, data);
    const double end = first + double{1} * (stages_[i - 1].gpus + stages_[i].gpus) / data;
    const double before = std::floor(first / node_.gpus);
    return end <= (before + 1) * node_.gpus ? node_.intra : node_.inter;
  }

  void add_sends(std::size_t i) {
    auto& sends = space_.send_s.emplace_back();
    if (i == 0) return;
    const auto& s = stages_[i - 1];
    const double samples = double{1} * job_.global_batch / space_.microbatches;
    const double bytes = samples * chain_.range(s.first, s.count).output_bytes;
    for (const auto& a : space_.plans[i - 1])
      for (const auto& b : space_.plans[i]) sends.push_back(there_and_back_s(i, a, b, bytes));
  }

  /// comm_i: a replica's activations are sent to the next stage, and their gradients back
  /// (send/recv of Figure 8); the GPUs of a tensor group gather the parts that each of them was
  /// sent (all_gather).
  double there_and_back_s(std::size_t i, const stage_plan& a, const stage_plan& b,
                          double bytes) const {
    const double each = bytes / std::min(a.data, b.data);
    const auto& over = a.data == b.data      ? link_before(i, b.data)
                       : gpus_ <= node_.gpus ? node_.intra
                                             : node_.inter;
    const double send =
        each / over.bytes_s(each, std::min(a.tensor, b.tensor)) + over.latency_us * 1e-6;
    return 2 * send + gather_s(a, each) + gather_s(b, each);
  }
  double gather_s(const stage_plan& p, double bytes) const {
    if (p.tensor <= 1) return 0;
    const auto& inside = p.tensor <= node_.gpus ? node_.intra : node_.inter;
    const double each = bytes / p.tensor;
    return (p.tensor - 1) * (each / inside.bytes_s(each, 1) + inside.latency_us * 1e-6);
  }

  /// Sets the tails, which the paper's formula does not have. A stage's sums begin after its last
  /// backward, while the stages before it still do theirs, which hides them. Stages of one node
  /// share its link: their sums have all ended when those of the first of them have, which begin
  /// last.
  void add_tails() {
    for (std::size_t i = 0; i < stages_.size(); ++i)
      for (auto& p : space_.plans[i]) {
        const bool shares = p.data > 1 && replicas_on_node(p.data) < p.data;
        double sums = p.sync_s, hidden = 0;
        for (std::size_t j = 0; j < i; ++j) {
          const auto& before = plan_with(j, p.data);
          if (shares && are_on_one_node(j, i, p.data)) sums += before.sync_s;
          hidden += before.backward_s;
        }
        p.tail_s = std::max(0.0, sums - hidden) + p.update_s;
      }
  }
  /// A stage's plan with `data` replicas, or with as many as it can have.
  const stage_plan& plan_with(std::size_t i, std::uint32_t data) const {
    const auto tensor = std::max(1U, stages_[i].gpus / data);
    return space_.plans[i][static_cast<std::size_t>(std::bit_width(tensor) - 1)];
  }
  bool are_on_one_node(std::size_t i, std::size_t j, std::uint32_t data) const {
    if (pipeline_gpus(data) <= node_.gpus) return true;
    return std::floor(gpus_before(i, data) / node_.gpus) ==
           std::floor(gpus_before(j, data) / node_.gpus);
  }

  const cluster& cluster_;
  const node& node_;
  double speed_;  // of its CPUs, if they are emulated as slower
  job_spec job_;
  const std::vector<cell_stage>& stages_;
  model_chain chain_;
  std::uint32_t gpus_ = 0;
  cell_space space_;
};

/// The least sum of paths and sends over assemblies whose rests and tails are within limits: a
/// shortest path through the stages, where a plan is a vertex and a transfer an edge. O(S p^2).
class limited_sum {
 public:
  explicit limited_sum(const cell_space& space) : space_{space}, from_(space.plans.size()) {
    for (std::size_t i = 0; i < space.plans.size(); ++i) from_[i].resize(space.plans[i].size());
  }

  /// The sum; infinite if some stage has no plan within the limits.
  double solve(double max_rest_s, double max_tail_s) {
    std::vector<double> before{0}, now;
    for (std::size_t i = 0; i < space_.plans.size(); ++i) {
      const auto& plans = space_.plans[i];
      now.assign(plans.size(), never);
      for (std::size_t b = 0; b < plans.size(); ++b) {
        const auto& p = plans[b];
        if (!p.fits || p.tail_s > max_tail_s) continue;
        if (p.rest_s(space_.microbatches) > max_rest_s) continue;
        for (std::size_t a = 0; a < before.size(); ++a) {
          const double sum = before[a] + space_.send(i, a, b) + p.path_s();
          if (sum >= now[b]) continue;
          now[b] = sum;
          from_[i][b] = static_cast<std::uint32_t>(a);
        }
      }
      before.swap(now);
    }
    best_ = std::ranges::min_element(before) - before.begin();
    return before[static_cast<std::size_t>(best_)];
  }

  /// The assembly of the last solve().
  std::vector<std::uint32_t> chosen() const {
    std::vector<std::uint32_t> out(space_.plans.size());
    auto at = static_cast<std::uint32_t>(best_);
    for (auto i = out.size(); i-- > 0;) {
      out[i] = at;
      at = from_[i][at];
    }
    return out;
  }

 private:
  const cell_space& space_;
  std::vector<std::vector<std::uint32_t>> from_;
  std::ptrdiff_t best_ = 0;
};

/// The distinct values of all plans that fit, ascending.
template <class Value>
std::vector<double> values_of(const cell_space& space, Value value) {
  std::vector<double> values;
  for (const auto& plans : space.plans)
    for (const auto& p : plans)
      if (p.fits) values.push_back(value(p));
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

assembly assembled(const cell_space& space, std::vector<std::uint32_t> chosen) {
  assembly a;
  double slowest = 0, rest = 0, tail = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto& p = space.plans[i][chosen[i]];
    const double send_s = space.send(i, i == 0 ? 0 : chosen[i - 1], chosen[i]);
    a.printed_s += p.work_s + send_s;
    a.estimate_s += p.path_s() + send_s;
    if (p.work_s > slowest) a.bottleneck = static_cast<std::uint32_t>(i);
    slowest = std::max(slowest, p.work_s);
    rest = std::max(rest, p.rest_s(space.microbatches));
    tail = std::max(tail, p.tail_s);
  }
  a.printed_s += (space.microbatches - 1) * slowest;
  a.estimate_s += rest + tail;
  a.chosen = std::move(chosen);
  return a;
}

// estimate_s is sum of paths and sends + largest rest + largest tail. A shortest path alone does
// not minimize it, because of the two maxima, and there are p^S assemblies (2^S for the paper's
// sampling). But the two largest values belong to some plans: for each pair of limits among the
// plans' own values, the least sum within the limits is a shortest path, and the best of these is
// the optimum. Limits are tried in ascending order; since no sum is below `min_sum`, a loop ends
// when limit and min_sum together are no better than the best so far.
std::optional<assembly> best_assembly(const cell_space& space) {
  limited_sum sums{space};
  const double min_sum = sums.solve(never, never);
  if (min_sum == never) return {};
  auto best = assembled(space, sums.chosen());
  const auto rests = values_of(space, [&](auto& p) { return p.rest_s(space.microbatches); });
  const auto tails = values_of(space, [](auto& p) { return p.tail_s; });
  for (const double rest : rests) {
    if (min_sum + rest + tails.front() >= best.estimate_s) break;
    if (sums.solve(rest, never) == never) continue;
    for (const double tail : tails) {
      if (min_sum + rest + tail >= best.estimate_s) break;
      if (sums.solve(rest, tail) == never) continue;
      auto a = assembled(space, sums.chosen());
      if (a.estimate_s < best.estimate_s) best = std::move(a);
    }
  }
  return best;
}

cell_space restricted(cell_space space,
                      const std::function<bool(std::size_t, const stage_plan&)>& keep) {
  for (std::size_t i = 0; i < space.plans.size(); ++i)
    for (auto& p : space.plans[i]) p.fits = p.fits && keep(i, p);
  return space;
}

cell_space sampled(cell_space space) {
  return restricted(std::move(space),
                    [](std::size_t, const stage_plan& p) { return p.data == 1 || p.tensor == 1; });
}

double assemblies_of(const cell_space& space) {
  double product = 1;
  for (const auto& plans : space.plans)
    product *= static_cast<double>(std::ranges::count_if(plans, &stage_plan::fits));
  return product;
}

cell_space space_of(const cluster& c, const gpu_pool& pool, const job_spec& job,
                    const cell_stages& stages) {
  return cell_timer{c, pool, job, stages}.time();
}

}  // namespace troupe::planners
