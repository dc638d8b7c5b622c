#include "planners/marp.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "planners/cost_model.hpp"
#include "planners/memory.hpp"

namespace troupe::planners {
namespace {

using kind = reason::kind;

// What is asked of a GPU type many times.
struct type_facts {
  std::vector<node_index> nodes;  // largest first
  std::uint64_t gpus = 0;
};

struct candidate {
  plan how;
  double slowest_iteration_s = 0;  // over the types that could serve it
  double dearest_run = 0;          // likewise
  double score = 0;                // larger is better
};

std::vector<std::uint32_t> divisors(std::uint32_t n) {
  std::vector<std::uint32_t> low, high;
  for (std::uint32_t i = 1; std::uint64_t{i} * i <= n; ++i) {
    if (n % i != 0) continue;
    low.push_back(i);
    if (i != n / i) high.push_back(n / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

expected<void> check(const cluster& c, const job_spec& job) {
  const auto& m = job.model;
  if (c.gpus.empty() || c.nodes.empty()) return refuse(kind::infeasible, "the cluster has no GPU");
  if (job.global_batch == 0) return refuse(kind::invalid, "global_batch is 0");
  if (m.operators.empty() && (m.hidden == 0 || m.layers == 0 || m.heads == 0 || m.sequence == 0)) {
    return refuse(kind::invalid,
                  fmt::format("model '{}' has neither operators nor all of hidden, layers, "
                              "heads and sequence",
                              m.name));
  }
  if (job.objective != "efficient" && job.objective != "fastest" && job.objective != "cheapest") {
    return refuse(kind::invalid,
                  fmt::format("unknown objective '{}'; known are efficient, fastest, cheapest",
                              job.objective));
  }
  return {};
}

// Fills in speed and price of a plan on each type that could serve it, and its score.
void estimate(const cluster& c, const job_spec& job, const std::vector<type_facts>& types,
              candidate& x) {
  auto& how = x.how;
  how.samples_per_s = how.cost_per_hour = std::numeric_limits<double>::infinity();
  double dearest_sample = 0;
  for (const auto g : how.gpu_types) {
    const auto e = estimate_iteration(c, job, how, pack(c, types[g].nodes, how.gpus()));
    how.samples_per_s = std::min(how.samples_per_s, e.samples_per_s);
    how.cost_per_hour = std::min(how.cost_per_hour, e.cost_per_hour);
    x.slowest_iteration_s = std::max(x.slowest_iteration_s, e.iteration_s);
    const double run = e.cost_per_hour * e.iteration_s / 3600;
    dearest_sample = std::max(dearest_sample, run / job.global_batch);
    x.dearest_run = std::max(x.dearest_run, run * static_cast<double>(job.iterations));
  }
  if (job.objective == "fastest") {
    x.score = how.samples_per_s;
  } else if (job.objective == "cheapest") {
    x.score = -dearest_sample;
  } else {
    x.score = how.samples_per_s / how.gpus();
  }
}

bool better(const candidate& a, const candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  if (a.how.gpus() != b.how.gpus()) return a.how.gpus() < b.how.gpus();
  if (a.how.bytes_per_gpu != b.how.bytes_per_gpu) return a.how.bytes_per_gpu < b.how.bytes_per_gpu;
  return a.how.tensor_parallel < b.how.tensor_parallel;
}

// What a deadline and a budget leave. Refuses if that is nothing.
expected<void> drop(const job_spec& job, std::vector<candidate>& all) {
  const auto run_s = [&](const candidate& x) {
    return x.slowest_iteration_s * static_cast<double>(job.iterations);
  };
  if (job.deadline_s) {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& x : all) best = std::min(best, run_s(x));
    std::erase_if(all, [&](const auto& x) { return run_s(x) > *job.deadline_s; });
    if (all.empty()) {
      return refuse(kind::infeasible,
                    fmt::format("no plan meets the deadline of {:.0f} s; the fastest "
                                "takes {:.0f} s",
                                *job.deadline_s, best));
    }
  }
  if (job.budget) {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& x : all) best = std::min(best, x.dearest_run);
    std::erase_if(all, [&](const auto& x) { return x.dearest_run > *job.budget; });
    if (all.empty()) {
      return refuse(
          kind::infeasible,
          fmt::format("no plan stays within the budget of {:.2f}; the cheapest{} "
                      "costs {:.2f}",
                      *job.budget, job.deadline_s ? " that meets the deadline" : "", best));
    }
  }
  return {};
}

}  // namespace

expected<std::vector<plan>> marp(const cluster& c, const job_spec& job) {
  if (auto ok = check(c, job); !ok) return tl::unexpected(ok.error());
  std::vector<type_facts> types(c.gpus.size());
  double largest = 0;
  std::uint32_t node_gpus = 0;
  for (gpu_index g = 0; g < types.size(); ++g) {
    types[g].nodes = nodes_of_type(c, g);
    if (types[g].nodes.empty()) continue;
    for (const auto n : types[g].nodes) types[g].gpus += c.nodes[n].gpus;
    node_gpus = std::max(node_gpus, c.nodes[types[g].nodes[0]].gpus);
    largest = std::max(largest, c.gpus[g].memory_bytes());
  }

  std::vector<candidate> all;
  double least = std::numeric_limits<double>::infinity();
  std::string too_many;  // about the first plan that fits the memory but not the number
  for (std::uint32_t t = 1; t <= node_gpus; t *= 2) {
    if (job.model.operators.empty() && job.model.heads % t != 0) break;
    for (const auto d : divisors(job.global_batch)) {
      candidate x;
      x.how.data_parallel = d;
      x.how.tensor_parallel = t;
      x.how.bytes_per_gpu =
          marp_bytes(job.model, job.global_batch, d, t) * (1 + c.settings.memory_headroom);
      least = std::min(least, x.how.bytes_per_gpu);
      std::uint64_t gpus = 0, groups = 0;
      for (gpu_index g = 0; g < types.size(); ++g) {
        if (types[g].gpus == 0 || !(c.gpus[g].memory_bytes() > x.how.bytes_per_gpu)) continue;
        x.how.gpu_types.push_back(g);
        gpus += types[g].gpus;
        for (const auto n : types[g].nodes) groups += c.nodes[n].gpus / t;
      }
      x.how.tensor_in_node = groups >= d;
      if (gpus == 0) continue;
      if (std::uint64_t{d} * t > gpus) {
        if (too_many.empty()) {
          too_many = fmt::format("needs {} GPUs of at least {:.1f} GB; the cluster has {}",
                                 std::uint64_t{d} * t, x.how.bytes_per_gpu / bytes_per_gb, gpus);
        }
        continue;
      }
      estimate(c, job, types, x);
      all.push_back(std::move(x));
    }
  }
  if (all.empty() && !too_many.empty()) return refuse(kind::infeasible, too_many);
  if (all.empty()) {
    return refuse(kind::infeasible,
                  fmt::format("needs {:.1f} GB a GPU at best; the largest here has {:g}",
                              least / bytes_per_gb, largest / bytes_per_gb));
  }
  if (auto ok = drop(job, all); !ok) return tl::unexpected(ok.error());
  std::ranges::stable_sort(all, better);
  std::vector<plan> plans;
  for (auto& x : all) plans.push_back(std::move(x.how));
  return plans;
}

}  // namespace troupe::planners
