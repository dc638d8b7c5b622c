#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "harness/figures.hpp"
#include "planners/search/datacenter_selection.hpp"
#include "studies/training_simulation.hpp"

// Shared by the figures: the paper's testbed and its models, simulated with all actors in virtual
// time; its large clusters, planned by Algorithm 1.

using namespace troupe;  // an example's own header

inline const std::vector<std::string> baselines{"gpipe", "megatron", "varuna"};
inline const std::vector<std::string> ours{"varuna-forward-first", "atlas", "atlas-least-progress",
                                           "best"};
inline const std::vector<std::string> studied{"varuna", "varuna-forward-first", "atlas",
                                              "atlas-least-progress"};

struct measured {
  double s = 0;     // one iteration; of a study, slots
  double used = 0;  // share of the GPUs' time
};

inline measured run(std::shared_ptr<const cluster> c, job_spec job, const std::string& schedule) {
  job.train->schedule = schedule;
  studies::training_simulation_options o;
  o.cluster = std::move(c);
  o.job = std::move(job);
  // One of several, from begin to begin: last stages update beside the next one's first steps.
  const bool follows = !o.job.slots;
  if (follows) o.job.iterations = 4;
  const auto done = must(studies::simulate_training(o));
  const auto& r = done.report;
  const auto& i = follows ? r.iterations[2] : r.iterations.front();
  const double s = (follows ? r.iterations.back().begin_s : i.end_s) - i.begin_s;
  return {s, i.busy_s / (s * r.stages * r.pipelines)};
}

/// 12 GPUs for 3 pipelines of 4 stages: 6, 3 and 3, so that all peers of a stage are in one
/// datacenter. (In 3 datacenters of 4, as in the paper, they cannot be.) Table 1: one connection
/// carries 1.465 MB in its latency.
inline std::shared_ptr<const cluster> testbed(double latency_ms) {
  auto c = *cluster_named("atlas-testbed");
  for (auto& n : c.nodes)
    if (n.name.ends_with("-3")) n.datacenter = 0;
  for (auto& w : c.wan) w.rtt_ms = 2 * latency_ms, w.connection_gbps = 1.465 * 8 / latency_ms;
  return std::make_shared<const cluster>(std::move(c));
}

/// `connections`: 1, or 0 for as many as increase the rate.
inline job_spec training_of(const std::string& model, std::uint32_t layers_a_stage,
                            std::uint32_t microbatches, std::uint32_t connections) {
  job_spec job;
  job.name = model;
  job.model = model_named(model);
  job.model.layers = 4 * layers_a_stage;
  job.global_batch = 3 * microbatches;
  job.pipeline = {4, 3, microbatches, 2, 0, connections};
  job.train.emplace();
  return job;
}

/// The range of a ratio over the settings of a figure.
struct range {
  double min = 1e300, max = 0;
  void add(double x) { min = std::min(min, x), max = std::max(max, x); }
  std::string text() const { return fmt::format("{:.2f} to {:.2f}", min, max); }
};

using ranges = std::map<std::string, range>;

/// One setting: the time of every baseline relative to ATLAS's, and the ablation.
inline void compare(const std::string& model, std::uint32_t layers, std::uint32_t m,
                    double latency_ms, std::uint32_t connections, ranges& strict, ranges& min,
                    range& used) {
  const auto c = testbed(latency_ms);
  const auto with = training_of(model, layers, m, 0),
             theirs = training_of(model, layers, m, connections);
  fmt::print("{:7}{:3}{:6.0f} ", model, m, latency_ms);
  std::map<std::string, double> s;
  for (const auto& name : baselines) s[name] = run(c, theirs, name).s;
  s["varuna-forward-first"] = run(c, theirs, "varuna-forward-first").s;
  for (const auto& name : {"atlas", "atlas-least-progress", "best"}) {
    const auto x = run(c, with, name);
    s[name] = x.s;
    if (name == ours[2]) used.add(100 * x.used);
  }
  for (const auto& name : baselines) fmt::print("{:10.3f}", s[name]);
  for (const auto& name : ours) fmt::print("{:{}.3f}", s[name], name == ours[0] ? 12 : 10);
  for (const auto& name : baselines) {
    strict[name].add(s[name] / s["atlas"]), min[name].add(s[name] / s["atlas-least-progress"]);
    fmt::print("{:8.2f}", s[name] / s["atlas-least-progress"]);
  }
  min["varuna-forward-first"].add(s["varuna-forward-first"] / s["atlas-least-progress"]);
  fmt::print("\n");
}

inline void heads() {
  fmt::print(
      "{:7}{:>3}{:>6} {:>10}{:>10}{:>10}{:>12}{:>10}{:>10}{:>10}   times longer than ATLAS lp\n",
      "model", "M", "ms", "gpipe", "megatron", "varuna", "V. f.first", "ATLAS", "ATLAS lp", "best");
}

/// Datacenters of that many GPUs, with 60 stages and micro-batches, C slots per transfer.
inline planners::selection select(const std::vector<std::uint32_t>& gpus, double c,
                                  const std::string& schedule) {
  cluster all;
  all.gpus.resize(1);
  all.gpus[0].memory_gb = 1e6;
  for (std::uint32_t dc = 0; dc < gpus.size(); ++dc) {
    all.datacenters.push_back({fmt::format("dc{}", dc + 1), {}});
    for (std::uint32_t n = 0; n < gpus[dc] / 10; ++n) {
      node x;
      x.name = fmt::format("dc{}-{}", dc + 1, n);
      x.datacenter = dc;
      x.gpus = 10;
      x.intra = x.inter = {"lan", 100, 0};
      all.nodes.push_back(std::move(x));
    }
  }
  job_spec job;
  job.slots = slot_costs{1, 1, 2, 0, c};
  job.pipeline.stages = job.pipeline.microbatches = 60;
  job.train.emplace().schedule = schedule;
  planners::selection_options o;
  o.cell = schedule.starts_with("atlas") ? static_cast<std::uint32_t>(c) : 1;
  return must(planners::select_datacenters(all, planners::idle_index{all}, job, o));
}
