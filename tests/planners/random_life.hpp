#pragma once

#include <algorithm>

#include "planners/scene.hpp"
#include "planners/variety.hpp"

// Jobs that arrive, run out of memory and end, at random: for recordings of every policy.

namespace random_life {

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::scene;

inline job_spec some_job(random_source& r, const cluster& c) {
  if (r.chance(0.2)) {
    auto job = variety::some_training(r);
    if (r.chance(0.5)) job.pipeline.stages = 1 + std::uint32_t(r.below(4));
    if (r.chance(0.3)) job.pipeline.data_parallel = 1U << r.below(2);
    if (job.slots && job.pipeline.stages == 0) job.pipeline.stages = 2;
    if (r.chance(0.1)) job.limits.deadline_s = 100 * r.uniform();
    if (r.chance(0.1)) job.limits.budget = r.uniform();
    return job;
  }
  auto job = variety::some_program(r, c);
  if (r.chance(0.15)) job.program.command = {"train"};
  if (r.chance(0.2)) job.limits.deadline_s = 3600 * 1000 * r.uniform();
  if (r.chance(0.1)) {  // a small model, since its pipelines are searched
    job.model = sample::gpt("few", 512, 3, 8, 512, 16'000);
    job.memory.reset();
    job.limits.slo_s = 3600 * 100 * r.uniform();
    if (r.chance(0.5)) job.limits.budget = 1000 * r.uniform();
  }
  return job;
}

/// `jobs` jobs arrive, numbered from `next` on.
inline void arrive(scene& s, random_source& r, job_id& next, std::uint64_t jobs) {
  for (; jobs > 0; --jobs) {
    auto& j = s.add(next++, some_job(r, s.cluster));
    j.training = runs_as_pipelines(*j.spec, j.plans.get());
    j.submitted_s = s.now_s;
  }
}

/// The world between two decisions: a job that ran ends, runs out of memory or is set back.
inline void go_on(scene& s, random_source& r) {
  s.now_s += 20 + 400 * r.uniform();
  for (auto at = s.running.begin(); at != s.running.end();) {
    auto& j = at->second;
    j.iteration_s = j.how.samples_per_s > 0 ? j.spec->global_batch / j.how.samples_per_s : 0;
    const auto fate = r.uniform();
    if (fate > 0.35) {
      ++at;
      continue;
    }
    for (const auto& share : j.where)
      s.idle.set_idle(share.node, s.idle.idle(share.node) + share.gpus);
    if (fate < 0.15) {
      auto back = j;
      back.where.clear();
      if (fate < 0.08) {
        ++back.history.out_of_memory;
        back.history.bytes_floor = std::max(back.history.bytes_floor, j.how.bytes_per_gpu);
        back.history.tried_gpus = total_gpus(j.where);
        back.history.tried_bytes = 1e15;
        for (const auto& share : j.where)
          back.history.tried_bytes =
              std::min(back.history.tried_bytes, s.cluster.gpu_of(share.node).memory_bytes());
      }
      back.progress.iterations_done += r.below(20);
      back.rows = j.how.rows;
      s.waiting[at->first] = back;
    }
    at = s.running.erase(at);
  }
}

}  // namespace random_life
