#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/small_cluster.hpp"
#include "messages/base/random.hpp"
#include "planners/policy/policy.hpp"
#include "simulation/undisturbed.hpp"

using namespace troupe;
using namespace troupe::simulation;

namespace {

/// A training of several pipelines in one datacenter, and nodes that are lost for good, for a
/// while, or cut off.
struct lossy_training {
  std::shared_ptr<cluster> on = harness::small_cluster();
  job_spec job;
  fault_plan faults;
  std::string what;

  explicit lossy_training(random_source& r) {
    const auto nodes = 3 + static_cast<std::uint32_t>(r.below(3));
    const auto gpus = 1 + static_cast<std::uint32_t>(r.below(2));
    const auto stages = 1 + static_cast<std::uint32_t>(r.below(3));
    const auto pipelines = std::clamp(nodes * gpus / stages, 1U, 4U);
    on->datacenters.resize(1);
    on->wan.clear();
    const auto one = on->nodes.front();
    on->nodes.clear();
    for (std::uint32_t i = 0; i < nodes; ++i) {
      on->nodes.push_back(one);
      on->nodes.back().name = fmt::format("n-{}", i);
      on->nodes.back().gpus = gpus;
    }
    job = harness::small_job("job", 60 + r.below(100), pipelines * 4);
    job.train.emplace();
    job.train->on_loss = "heal";
    job.model.tied_head = r.chance(0.5);
    job.pipeline.stages = stages;
    job.pipeline.data_parallel = pipelines;
    job.pipeline.microbatches = 4;
    what = fmt::format("{} nodes of {} GPUs, {} stages in {} pipelines:", nodes, gpus, stages,
                       pipelines);
    for (auto n = 1 + r.below(3); n > 0; --n) add_fault(r, nodes);
  }

 private:
  void add_fault(random_source& r, std::uint32_t nodes) {
    const auto node = fmt::format("n-{}", 1 + r.below(nodes - 1));
    const double at_s = 2 + 5 * r.uniform();
    if (r.chance(0.5)) {
      const double away_s = r.chance(0.5) ? 1e6 : 0.2 + 5 * r.uniform();
      faults.crashes.push_back({node, at_s, away_s});
      what += fmt::format(" {} crashes at {:.4f} for {:.4g} s", node, at_s, away_s);
    } else {
      const double end_s = at_s + 0.2 + 4 * r.uniform();
      faults.partitions.push_back({{node}, {}, at_s, end_s});
      what += fmt::format(" {} is cut off from {:.4f} to {:.4f}", node, at_s, end_s);
    }
  }
};

}  // namespace

// A lost tensor is requested, whoever waits for it: no training has to begin again for want of
// progress, whether it notices the loss of a node or not.
TEST_CASE("trainings whose nodes are lost at random have the weights of undisturbed ones") {
  int healed = 0, joined = 0;
  for (int seed = 0; seed < 150; ++seed) {
    random_source r{static_cast<std::uint64_t>(seed) + 301};
    const lossy_training x{r};
    CAPTURE(seed, x.what);
    actors::virtual_cluster_options o;
    o.cluster = x.on;
    o.policy = planners::make_policy("fcfs");
    o.faults = x.faults;
    weights_oracle weights;
    o.on_weights = [&](const stage_setup& s, std::uint64_t iteration, std::uint64_t digest) {
      weights.on_weights(&x.job, s, iteration, digest);
    };
    actors::virtual_cluster v{o};
    v.submit({{0, x.job}});
    v.world().run_until([&] { return !v.accepted().empty(); }, 100.0);
    job_status job;
    for (int i = 0; i < 100 && !is_final(job.state); ++i) {
      v.world().run_until(v.world().now_s() + 5);
      const auto a = v.ask(query_jobs{1, 1});
      REQUIRE(a.reply);
      job = std::get<query_reply>(a.reply->first).jobs.at(0);
    }
    INFO(job.detail);
    CHECK(job.state == job_state::finished);
    CHECK(weights.invalid().empty());
    const auto a = v.ask(query_training{2, 1});
    REQUIRE(a.reply);
    const auto report = std::get<training_reply>(a.reply->first).report;
    for (const auto& e : report.events) {
      INFO(e);
      CHECK(e.find("no stage made progress") == std::string::npos);
    }
    healed += report.heals.has_value();
    joined += report.heals && report.heals->joined;
  }
  CHECK(healed > 40);
  CHECK(joined > 8);
}
