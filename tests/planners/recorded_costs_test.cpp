#include <catch2/catch.hpp>

#include "harness/recorded.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/variety.hpp"

// The cost model's figures for all kinds of jobs and clusters.

using namespace troupe;
using namespace troupe::planners;
using troupe::test::recording;
using troupe::test::values;

namespace {

/// Some GPUs of some nodes, at least one.
allocation some_gpus(random_source& r, const cluster& c) {
  allocation where;
  while (where.empty())
    for (node_index n = 0; n < c.nodes.size(); ++n)
      if (r.chance(0.5)) where.push_back({n, 1 + std::uint32_t(r.below(c.nodes[n].gpus))});
  return where;
}

std::string estimate_text(const iteration_estimate& e) {
  return values(e.compute_s, e.tensor_s, e.data_s, e.pipeline_s, e.iteration_s, e.samples_per_s,
                e.cost_per_hour);
}

std::string gpus_text(const allocation& where) {
  std::string out;
  for (const auto& share : where)
    out += (out.empty() ? "" : ",") + values(share.node) + ":" + values(share.gpus);
  return out;
}

/// Stages of every size on idle GPUs of any type.
std::vector<stage_request> some_stages(random_source& r, const cluster& c, const job_spec& job) {
  const auto pieces = pieces_of(job.model);
  std::vector<stage_request> stages(1 + r.below(std::min(5U, pieces)));
  for (auto& s : stages) s = {gpu_index(r.below(c.gpus.size())), 1, r.chance(0.2) ? 2U : 1U};
  for (auto i = stages.size(); i < pieces; ++i) ++stages[r.below(stages.size())].pieces;
  return stages;
}

}  // namespace

TEST_CASE("a program takes the recorded time and memory") {
  recording all{"planners", "programs"};
  random_source r{1};
  for (int i = 0; i < 500; ++i) {
    if (i % 10 == 0) all.begin(i);
    auto c = variety::some_cluster(r);
    auto job = variety::some_program(r, c);
    if (r.chance(0.2) && job.model.operators.empty())
      for (auto& g : c.gpus)
        if (r.chance(0.7)) g.profile = variety::some_profile(r, job.model);
    const auto where = some_gpus(r, c);
    plan how;
    for (const std::uint32_t t : {1, 2, 4}) {
      if (total_gpus(where) % t != 0) break;
      how.tensor_parallel = t;
      how.data_parallel = total_gpus(where) / t;
      all.add(gpus_text(where), t, estimate_text(estimate_iteration(c, job, how, where)),
              program_bytes(job, how.data_parallel, t, c.settings.memory_headroom));
    }
    const auto parts = program_memory(job, how.data_parallel, how.tensor_parallel);
    all.add(trained_parameters(job), parts.weights, parts.gradients, parts.optimizer,
            parts.activations, parts.buffers, parts.ends);
    for (gpu_index g = 0; g < c.gpus.size(); ++g)
      all.add(g, estimate_text(
                     estimate_iteration(c, job, how, pack(c, nodes_of_type(c, g), how.gpus()))));
  }
  all.check();
}

TEST_CASE("a plan's stages take the recorded times, by the closed form and by simulation") {
  recording all{"planners", "stages"};
  random_source r{2};
  for (int i = 0; i < 2000; ++i) {
    if (i % 20 == 0) all.begin(i);
    const auto c = variety::some_cluster(r, 6);
    auto job = variety::some_training(r);
    const auto stages = some_stages(r, c, job);
    const auto pipelines = 1U << r.below(3);
    if (r.chance(0.1)) job.pipeline.virtual_stages = 2;
    const auto made = plan_of_stages(c, idle_index{c}, job, stages, pipelines);
    if (!made) continue;
    const auto t = time_plan(c, job, made->how, made->where);
    REQUIRE(t);
    const auto& k = t->shapes[0].costs;
    all.add(i, gpus_text(made->where), t->shapes[0].stages, t->shapes[0].cell,
            t->batches[0].microbatches, t->batches[0].rows, made->how.bytes_per_gpu, k.forward,
            k.recompute, k.backward, k.lan, k.wan, k.wan_latency, t->times.links,
            t->times.iterations);
    for (std::size_t s = 0; s < t->times.stages.size(); ++s) {
      const auto& x = t->times.stages[s];
      const auto& b = t->costs[s];
      all.add(x.forward, x.recompute, x.backward, x.update, x.exchange, x.gradients,
              b.activation_bytes, b.gradient_bytes, b.tied_bytes);
    }
    all.add(estimate_text(*evaluate(c, job, *t, fidelity::closed)));
    if (const auto e = evaluate(c, job, *t, fidelity::simulated)) all.add(estimate_text(*e));
  }
  all.check();
}
