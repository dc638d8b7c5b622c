#include "simulation/fault_workloads.hpp"

#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "harness/small_cluster.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::simulation {

double spread(random_source& random, double low, double high) {
  return low * std::pow(high / low, random.uniform());
}

namespace {

job_spec training_of(random_source& random, const std::string& name) {
  auto spec = harness::small_job(name, 3 + random.below(30), 8);
  spec.train.emplace();
  spec.train->checkpoint_every = 1 + random.below(6);
  if (random.chance(0.5)) {
    spec.train->checkpoint = name;  // its shape is the policy's to choose and to change
    return spec;
  }
  spec.pipeline.stages = static_cast<std::uint32_t>(1 + random.below(3));
  spec.pipeline.data_parallel = static_cast<std::uint32_t>(1 + random.below(2));
  spec.pipeline.microbatches = 4;
  return spec;
}

}  // namespace

std::vector<arrival> workload_of(random_source random) {
  std::vector<arrival> result;
  for (int i = 0; i < jobs_a_seed; ++i) {
    const auto name = fmt::format("job-{}", i);
    const double at_s = random.uniform() * last_submission_s;
    if (random.chance(0.25)) {
      result.push_back({at_s, training_of(random, name)});
      continue;
    }
    auto spec = harness::small_job(name, 50 + random.below(600), 1U << random.below(4));
    if (random.chance(0.3)) spec.model = harness::gpt2(24, 1024, 16);
    spec.request.gpus = static_cast<std::uint32_t>(1 + random.below(4));
    result.push_back({at_s, std::move(spec)});
  }
  return result;
}

std::vector<arrival> tuning_workload_of(random_source random) {
  constexpr int jobs = 36, groups = 2;
  std::vector<arrival> result;
  for (int i = 0; i < jobs; ++i) {
    // Adapters share the start alone, so that only short jobs are worth it.
    const auto iterations = random.chance(0.5) ? 20 + random.below(80) : 200 + random.below(400);
    auto spec = harness::small_job(fmt::format("job-{}", i), iterations, 64);
    spec.merging.dataset_card = {"letters", random.chance(0.8) ? "english" : "french"};
    spec.merging.allowed = random.chance(0.8);
    if (random.chance(0.5)) spec.merging.kind = merge_kind::adapters;
    const double group = static_cast<double>(random.below(groups));
    result.push_back({group * last_submission_s / groups, std::move(spec)});
  }
  return result;
}

std::vector<arrival> program_workload_of(random_source random) {
  std::vector<arrival> result;
  for (int i = 0; i < jobs_a_seed; ++i) {
    auto spec =
        harness::small_job(fmt::format("job-{}", i), 50 + random.below(600), 1U << random.below(4));
    spec.request.gpus = static_cast<std::uint32_t>(1 + random.below(4));
    if (random.chance(0.8)) spec.program.command = {"a-program"};
    if (facts_of(spec).has_processes && random.chance(0.75)) {
      auto& e = spec.program.elastic.emplace();
      e.same_gpus = random.chance(0.2);
      if (!e.same_gpus && random.chance(0.3))
        spec.limits.max_gpus = e.max_gpus =
            spec.request.gpus + static_cast<std::uint32_t>(random.below(3));
      e.start_s = spread(random, 0.1, 20);
      e.save_s = spread(random, 0.01, 20);
      e.checkpoint_every_s = spread(random, 1, 60);
      spec.program.grace_s = spread(random, 0.5, 30);
    }
    result.push_back({random.uniform() * last_submission_s, std::move(spec)});
  }
  return result;
}

namespace {

/// Pipelines of one or two stages in two datacenters or three, with shares of their own.
job_spec grouped_training_of(random_source& random, const std::string& name) {
  auto spec = harness::small_job(name, 3 + random.below(30), 1);
  spec.model = harness::gpt2(12, 256, 8);
  spec.train.emplace();
  spec.train->checkpoint_every = 1 + random.below(6);
  if (random.chance(0.5)) spec.train->checkpoint = name;
  const auto c = harness::small_cluster();
  const auto first = random.below(3), sites = 2 + random.below(2), stages = 1 + random.below(2);
  auto& groups = spec.pipeline.groups.emplace();
  for (std::uint64_t i = 0; i < sites; ++i) {
    const auto site = (first + i) % c->datacenters.size();
    auto& g = groups.emplace_back();
    g.pipelines = static_cast<std::uint32_t>(1 + random.below(2));
    g.microbatches = static_cast<std::uint32_t>(1 + random.below(3));
    // Each datacenter of the small cluster has the type of its number.
    for (std::uint64_t s = 0; s < stages; ++s)
      g.stages.push_back({c->gpus[site].name,
                          static_cast<std::uint32_t>(24 / stages),
                          {},
                          c->datacenters[site].name,
                          {}});
  }
  spec.global_batch = static_cast<std::uint32_t>(microbatches_of(groups) * (1 + random.below(2)));
  return spec;
}

}  // namespace

std::vector<arrival> grouped_workload_of(random_source random) {
  auto all = workload_of(random.split(0));
  for (auto& a : all)
    if (random.chance(0.7)) a.spec = grouped_training_of(random, a.spec.name);
  return all;
}

}  // namespace troupe::simulation
