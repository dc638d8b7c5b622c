#include "planners/plans/user_request.hpp"

#include <algorithm>
#include <limits>

#include "messages/base/folds.hpp"
#include "messages/domain/tensor_split.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/measured_memory.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/accumulation.hpp"
#include "planners/plans/has.hpp"

namespace troupe::planners {

std::uint32_t largest_node(const cluster& c) {
  return max_of(c.nodes, 1, &node::gpus);
}

std::optional<job_view> placed_by_request(const job_spec& job) {
  if (facts_of(job).pipelines || facts_of(job).exact_gpus) return std::nullopt;
  job_view wish;
  wish.spec = std::make_shared<job_spec>(job);
  return wish;
}

// The layout that a competent user would choose for a given number of GPUs: the fastest that fits.
// If none fits, the one that needs the least memory is returned with bytes_per_gpu 0: fcfs and
// opportunistic start the job nevertheless, and it runs out of memory as it would for its user.
plan split_for(const cluster& c, const job_spec& job, const allocation& where, double bytes_floor,
               std::uint32_t max_tensor) {
  if (max_tensor == 0) max_tensor = largest_node(c);
  const auto count = total_gpus(where);
  double memory = std::numeric_limits<double>::infinity();
  std::vector<gpu_index> types;
  for (const auto& share : where) {
    const auto g = c.nodes[share.node].gpu;
    memory = std::min(memory, c.gpus[g].memory_bytes());
    if (std::ranges::find(types, g) == types.end()) types.push_back(g);
  }

  plan best, guess;
  double guess_bytes = std::numeric_limits<double>::infinity();
  const auto consider = [&](std::uint32_t t, std::uint32_t microbatches) {
    plan p;
    p.data_parallel = count / t;
    p.tensor_parallel = t;
    p.microbatches = microbatches;
    if (microbatches > 0)
      p.rows = static_cast<std::uint32_t>(batch_of_replica(job, count / t, microbatches).rows);
    const double bytes = program_bytes_on(c, types, job, p.data_parallel, t, microbatches);
    p.gpu_types = types;
    const auto e = estimate_iteration(c, job, p, where);
    set_figures(p, e);
    if (bytes < guess_bytes) {
      guess = p;
      guess_bytes = bytes;
    }
    if (!(bytes < memory) || bytes <= bytes_floor) return;
    p.bytes_per_gpu = bytes;
    if (best.bytes_per_gpu == 0 || p.samples_per_s > best.samples_per_s) best = p;
  };
  std::vector<std::uint32_t> tensors;
  for (std::uint32_t t = 1; t <= max_tensor && count % t == 0; t *= 2) {
    if (!splits_into(job.model, t)) break;
    tensors.push_back(t);
  }
  for (const auto t : tensors) consider(t, 0);
  if (best.bytes_per_gpu > 0 || !may_accumulate(job)) return best.bytes_per_gpu > 0 ? best : guess;
  for (const auto t : tensors)
    if (const auto m = fewest_micro_batches(c, types, job, count / t, t, memory, bytes_floor);
        m > 0)
      consider(t, m);
  return best.bytes_per_gpu > 0 ? best : guess;
}

std::vector<gpu_index> fastest_first(const cluster& c) {
  auto types = indices<gpu_index>(c.gpus.size());
  std::ranges::stable_sort(types, std::greater{}, [&](gpu_index g) { return flops_s(c.gpus[g]); });
  return types;
}

// A job on GPUs of several types runs at the speed of the slowest, so that one type that has enough
// comes before any mix, even if it is slower than the fastest.
std::optional<allocation> fastest_idle(const idle_index& idle, std::uint32_t gpus,
                                       const std::vector<gpu_index>& types) {
  if (gpus == 0) return {};
  std::uint64_t sum = 0;
  for (const auto g : types) {
    if (idle.idle_of(g) >= gpus) return best_fit(idle, gpus, std::span(&g, 1));
    sum += idle.idle_of(g);
  }
  if (sum < gpus) return {};
  allocation where;
  for (const auto g : types) {
    const auto n = std::min(gpus, idle.idle_of(g));
    const auto part = best_fit(idle, n, std::span(&g, 1));
    where.insert(where.end(), part.begin(), part.end());
    gpus -= n;
    if (gpus == 0) break;
  }
  return where;
}

}  // namespace troupe::planners
