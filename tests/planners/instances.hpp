#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/random.hpp"
#include "planners/cost/model_partition.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/plans/fits.hpp"

// Small clusters of instances of one GPU each, with jobs, and all of their plans one by one.

namespace instances {

using namespace troupe;
using namespace troupe::planners;

/// At most `gpus` instances of up to four types, and a job that they can hold more or less well.
struct instance {
  cluster c;
  job_spec job;

  instance(random_source& r, std::uint32_t gpus) {
    c.name = "instances";
    c.datacenters = {{"dc", {}}};
    const bool equal_links = r.chance(0.5);
    const troupe::link lan{"lan", 1 + 20 * r.uniform(), 50};
    add_model(r);
    const auto need_gb = 20.0 * parameters() / 1e9;
    const auto types = 1 + r.below(4);
    for (std::size_t t = 0; t < types; ++t) {
      gpu_type g;
      g.name = std::string(1, static_cast<char>('a' + t));
      g.memory_gb = need_gb * (0.15 + 1.2 * r.uniform()) + 0.1;
      g.fp16_tflops = 20 + 200 * r.uniform();
      g.efficiency = 0.5;
      g.memory_gbytes_s = 300 + 700 * r.uniform();
      g.price_per_hour = 0.5 + 5 * r.uniform();
      if (r.chance(0.2)) g.quota = 1 + static_cast<std::uint32_t>(r.below(3));
      c.gpus.push_back(g);
    }
    for (std::uint32_t n = 0; n < gpus; ++n) {
      const auto type = static_cast<gpu_index>(n < types ? n : r.below(types));
      const troupe::link own{"lan", 1 + 2.0 * type, 20};
      c.nodes.push_back(
          {"n" + std::to_string(n), 0, type, 1, {"pcie", 128, 5}, equal_links ? lan : own});
    }
    job.global_batch = 1U << (1 + r.below(4));
    job.iterations = 100;
    job.objective = "cheapest";
    if (r.chance(0.2)) job.pipeline.rows = 1;
  }

  /// Puts GPUs of one type together into nodes of up to `most`, with one slow network card each.
  void share_nodes(random_source& r, std::uint32_t max) {
    const troupe::link card{"lan", 0.2 + 4 * r.uniform() * r.uniform(), 20};
    std::vector<troupe::node> nodes;
    for (const auto& n : c.nodes) {
      const auto at = std::ranges::find_if(
          nodes, [&](const auto& x) { return x.gpu == n.gpu && x.gpus < max; });
      if (at != nodes.end() && r.chance(0.8)) {
        ++at->gpus;
        continue;
      }
      nodes.push_back(n);
      nodes.back().inter = card;
    }
    c.nodes = std::move(nodes);
  }

  void add_model(random_source& r) {
    auto& m = job.model;
    job.name = m.name = "model";
    m.tied_head = r.chance(0.5);
    if (r.chance(0.5)) {
      m.hidden = 512, m.heads = 8, m.sequence = 512, m.vocabulary = 16'000;
      m.layers = static_cast<std::uint32_t>(1 + r.below(4));
      return;
    }
    const auto n = 2 + r.below(7);
    for (std::size_t i = 0; i < n; ++i)
      m.operators.push_back(
          {"op", 1e11 * (0.1 + r.uniform()), 1e7 * (0.1 + r.uniform()), 1e6 * (0.1 + r.uniform())});
  }
  double parameters() const { return shape_of(job.model).parameters; }

  /// The job as its plans are simulated.
  job_spec simulated() const {
    auto out = job;
    out.train.emplace().schedule = "megatron";
    out.train->device = "sim";
    return out;
  }

  /// The stages of every plan that the instance has, with the job as it is trained.
  void each_plan(const std::function<void(const placed_plan&)>& see) const {
    const idle_index idle{c};
    auto placed = job;
    placed.train.emplace().schedule = "megatron";
    const auto pieces = pieces_of(job.model);
    const bool head = job.model.operators.empty();
    for (std::uint32_t d = 1; d <= idle.total_idle(); ++d) {
      if (job.global_batch % d != 0) continue;
      std::vector<std::uint32_t> left(c.gpus.size());
      for (const auto& n : c.nodes) left[n.gpu] += n.gpus;
      for (gpu_index g = 0; g < c.gpus.size(); ++g)
        if (c.gpus[g].quota > 0) left[g] = std::min(left[g], c.gpus[g].quota);
      std::vector<stage_request> stages;
      const std::function<void(std::uint32_t)> go = [&](std::uint32_t rest) {
        for (gpu_index g = 0; g < c.gpus.size(); ++g) {
          if (left[g] < d || stages.size() == pieces) continue;
          left[g] -= d;
          for (std::uint32_t n = 0; n <= rest; ++n) {
            if (n == 0 && (rest > 0 || !head || stages.empty())) continue;
            stages.push_back({g, n, 1});
            if (n == rest) {
              const auto p = plan_of_stages(c, idle, placed, stages, d);
              if (p && fits(c, idle, p->how, p->where)) see(*p);
              if (head && n > 0) go(0);
            } else {
              go(rest - n);
            }
            stages.pop_back();
          }
          left[g] += d;
        }
      };
      go(pieces);
    }
  }

  /// The same with every number of samples of a micro-batch that the job allows.
  void each_plan_of_all_rows(const std::function<void(const placed_plan&)>& see) const {
    if (job.pipeline.rows > 0) return each_plan(see);
    auto fixed = *this;
    for (std::uint32_t rows = 1; rows <= job.global_batch; ++rows) {
      fixed.job.pipeline.rows = rows;
      if (job.global_batch % rows == 0) fixed.each_plan(see);
    }
  }

  double run_s(const placed_plan& p) const {
    return job.global_batch / p.how.samples_per_s * static_cast<double>(job.iterations);
  }
  double cost(const placed_plan& p) const { return p.how.cost_per_hour * run_s(p) / 3600; }
};

}  // namespace instances
