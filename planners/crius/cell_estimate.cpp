#include "planners/crius/cell_estimate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "messages/time.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/profile.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/pipeline/model_partition.hpp"

namespace troupe::planners {

namespace {

/// The largest divisor of n that is at most `most`.
std::uint32_t divisor_below(std::uint32_t n, std::uint32_t most) {
  auto m = std::min(n, most);
  while (n % m != 0) --m;
  return m;
}

/// Times the plans of one Cell's stages, laid out as planners/pipeline/layout.hpp does: a
/// pipeline's stages are neighbours.
class cell_timer {
 public:
  cell_timer(const cluster& c, const gpu_pool& pool, const job_spec& job, const cell_stages& cell)
      : cluster_{c},
        node_{c.nodes[pool.nodes.front()]},
        job_{as_scheduled(job)},
        stages_{cell.stages},
        chain_{job.model} {
    std::uint32_t widest = 1;
    for (const auto& s : stages_) gpus_ += s.gpus, widest = std::max(widest, s.gpus);
    const auto batch = job.global_batch;
    space_.microbatches = divisor_below(batch / std::gcd(batch, widest),
                                        static_cast<std::uint32_t>(4 * stages_.size()));
  }

  cell_space time() && {
    for (std::size_t i = 0; i < stages_.size(); ++i) add_plans(i);
    for (std::size_t i = 0; i < stages_.size(); ++i) add_sends(i);
    add_tails();
    return std::move(space_);
  }

 private:
  void add_plans(std::size_t i) {
    auto& plans = space_.plans.emplace_back();
    for (std::uint32_t t = 1; t <= stages_[i].gpus; t *= 2)
      plans.push_back(plan_of(i, stages_[i].gpus / t, t));
  }

  stage_plan plan_of(std::size_t i, std::uint32_t data, std::uint32_t tensor) const {
    stage_plan p;
    p.data = data;
    p.tensor = tensor;
    const auto& m = job_.model;
    const auto samples = job_.global_batch / space_.microbatches;
    if (samples % data != 0 || (m.operators.empty() && m.heads % tensor != 0)) return p;
    const batch_split batch{space_.microbatches, samples / data};
    const bool last = i + 1 == stages_.size(), alone = stages_.size() == 1;
    const auto& s = stages_[i];
    const auto part = part_of_stage(chain_, m, s.first, s.count, tensor, last);
    // Of the other stages the cost model asks no more than whether there are any.
    std::vector<stage_part> parts(alone ? 1 : 2);
    const std::uint32_t at = last && !alone ? 1 : 0;
    parts[at] = part;
    const auto& gpu = cluster_.gpus[node_.gpu];
    const auto& inside = tensor <= node_.gpus ? node_.intra : node_.inter;
    const auto costs = costs_of_stage(job_, device_of(job_, gpu), parts, at, batch.rows, inside);
    p.backward_s = costs.backward_s;
    p.work_s = costs.forward_s + costs.recompute_s + costs.backward_s;
    p.update_s = costs.update_s;
    p.sync_s = sync_s(p, static_cast<double>(costs.gradient_bytes));
    const auto behind = static_cast<std::uint32_t>(stages_.size() - 1 - i);
    p.bytes_per_gpu = memory_of(part, load_of(job_, batch, behind)).total() *
                      (1 + cluster_.settings.memory_headroom);
    p.fits = p.bytes_per_gpu < gpu.memory_bytes();
    return p;
  }

  /// Replicas of a stage that are on one node, if every stage is divided among as many.
  double replicas_on_node(std::uint32_t data) const {
    const double pipeline = double{1} * gpus_ / data;
    return std::clamp(std::floor(node_.gpus / pipeline), 1.0, double{1} * data);
  }

  /// Each replica sums a part of the gradients, which the others send it and have back. Inside a
  /// node as its GPUs were measured to; between nodes over the link that the node's stages share.
  double sync_s(const stage_plan& p, double bytes) const {
    if (p.data <= 1) return 0;
    const double here = replicas_on_node(p.data);
    if (here >= p.data) {
      const auto& gpu = cluster_.gpus[node_.gpu];
      return sum_s(measured_sums(job_, gpu), node_.intra, p.data, bytes);
    }
    const double pipeline = double{1} * gpus_ / p.data;
    const double on_node = std::max(1.0, stages_.size() * std::min(1.0, node_.gpus / pipeline));
    const double sent = 2 * bytes / p.data * (p.data - here) * here * on_node;
    return sent / node_.inter.bytes_s() + 2 * node_.inter.latency_us * 1e-6;
  }

  /// Between a pipeline's stages i - 1 and i, if all stages have so many replicas.
  const link& link_before(std::size_t i, std::uint32_t data) const {
    if (gpus_ <= node_.gpus) return node_.intra;
    double first = 0;
    for (std::size_t j = 0; j + 1 < i; ++j) first += double{1} * stages_[j].gpus / data;
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

  /// A replica's activations are sent to the next stage, and its gradient back. GPUs that share a
  /// stage gather what each of them was sent.
  double there_and_back_s(std::size_t i, const stage_plan& a, const stage_plan& b,
                          double bytes) const {
    const double each = bytes / std::min(a.data, b.data);
    const auto& over = a.data == b.data      ? link_before(i, b.data)
                       : gpus_ <= node_.gpus ? node_.intra
                                             : node_.inter;
    const double send = each / over.bytes_s() + over.latency_us * 1e-6;
    return 2 * send + gather_s(a, each) + gather_s(b, each);
  }
  double gather_s(const stage_plan& p, double bytes) const {
    if (p.tensor <= 1) return 0;
    const auto& inside = p.tensor <= node_.gpus ? node_.intra : node_.inter;
    return (p.tensor - 1) * (bytes / p.tensor / inside.bytes_s() + inside.latency_us * 1e-6);
  }

  /// A stage's sums begin after its last backward, and those of the stages before it come later: at
  /// least as long as the quickest of their plans takes.
  void add_tails() {
    double hidden = 0;
    for (auto& plans : space_.plans) {
      double least = never;
      for (auto& p : plans) {
        p.tail_s = std::max(0.0, p.sync_s - hidden) + p.update_s;
        if (p.fits) least = std::min(least, p.backward_s);
      }
      if (least < never) hidden += least;
    }
  }

  const cluster& cluster_;
  const node& node_;
  job_spec job_;
  const std::vector<cell_stage>& stages_;
  model_chain chain_;
  std::uint32_t gpus_ = 0;
  cell_space space_;
};

/// The least sum of work and sends of plans whose work and tail are within limits.
class limited_sum {
 public:
  explicit limited_sum(const cell_space& space) : space_{space}, from_(space.plans.size()) {
    for (std::size_t i = 0; i < space.plans.size(); ++i) from_[i].resize(space.plans[i].size());
  }

  /// Infinite: some stage has no such plan.
  double solve(double max_work_s, double max_tail_s) {
    std::vector<double> before{0}, now;
    for (std::size_t i = 0; i < space_.plans.size(); ++i) {
      const auto& plans = space_.plans[i];
      now.assign(plans.size(), never);
      for (std::size_t b = 0; b < plans.size(); ++b) {
        const auto& p = plans[b];
        if (!p.fits || p.work_s > max_work_s || p.tail_s > max_tail_s) continue;
        for (std::size_t a = 0; a < before.size(); ++a) {
          const double sum = before[a] + space_.send(i, a, b) + p.work_s;
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

  /// Of the last solve().
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

std::vector<double> values_of(const cell_space& space, double stage_plan::*what) {
  std::vector<double> values;
  for (const auto& plans : space.plans)
    for (const auto& p : plans)
      if (p.fits) values.push_back(p.*what);
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

job_spec as_scheduled(job_spec job) {
  if (!job.train) job.train.emplace().schedule = "megatron";
  return job;
}

assembly assembled(const cell_space& space, std::vector<std::uint32_t> chosen) {
  assembly a;
  double slowest = 0, tail = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto& p = space.plans[i][chosen[i]];
    a.printed_s += p.work_s + space.send(i, i == 0 ? 0 : chosen[i - 1], chosen[i]);
    if (p.work_s > slowest) a.bottleneck = static_cast<std::uint32_t>(i);
    slowest = std::max(slowest, p.work_s);
    tail = std::max(tail, p.tail_s);
  }
  a.printed_s += (space.microbatches - 1) * slowest;
  a.estimate_s = a.printed_s + tail;
  a.chosen = std::move(chosen);
  return a;
}

std::optional<assembly> best_assembly(const cell_space& space) {
  limited_sum sums{space};
  const double least_sum = sums.solve(never, never);
  if (least_sum == never) return {};
  auto best = assembled(space, sums.chosen());
  const auto works = values_of(space, &stage_plan::work_s);
  const auto tails = values_of(space, &stage_plan::tail_s);
  const double rest = space.microbatches - 1;
  for (const double work : works) {
    if (least_sum + rest * work + tails.front() >= best.estimate_s) break;
    if (sums.solve(work, never) == never) continue;
    for (const double tail : tails) {
      if (least_sum + rest * work + tail >= best.estimate_s) break;
      if (sums.solve(work, tail) == never) continue;
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
