#include <catch2/catch.hpp>

#include "harness/pipeline_shapes.hpp"
#include "harness/small_cluster.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/schedule/named_schedule.hpp"
#include "studies/training_simulation.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::studies;

namespace {

job_spec figure6() {
  job_spec job;
  job.name = "figure6";
  job.slots = slot_costs{1, 1, 2, 0, 2};
  job.pipeline.stages = 6;
  job.pipeline.data_parallel = 2;
  job.pipeline.microbatches = 4;
  job.pipeline.stages_per_datacenter = 2;
  job.train.emplace();
  return job;
}

job_spec sixty_stages(std::uint32_t datacenters, std::uint32_t c) {
  auto job = figure6();
  job.slots->wan = c;
  job.pipeline.stages = job.pipeline.microbatches = 60;
  job.pipeline.data_parallel = c;
  job.pipeline.stages_per_datacenter = 60 / datacenters;
  return job;
}

simulated_training run(job_spec job, const std::string& schedule) {
  job.train->schedule = schedule;
  training_simulation_options o;
  o.cluster = std::make_shared<const cluster>(cluster_of_slots(job));
  o.job = std::move(job);
  auto done = simulate_training(std::move(o));
  if (!done) FAIL(done.error().text);
  return *done;
}

double slots(const job_spec& job, const std::string& schedule) {
  const auto done = run(job, schedule);
  REQUIRE(done.report.iterations.size() == job.iterations);
  const auto& last = done.report.iterations.back();
  return last.end_s - last.begin_s;
}

}  // namespace

TEST_CASE("the graph runs the paper's Figure 6 in the planned number of slots") {
  CHECK(slots(figure6(), "varuna") == Approx(38).epsilon(1e-9));
  CHECK(slots(figure6(), "atlas") == Approx(36).epsilon(1e-9));
  CHECK(slots(figure6(), "atlas-least-progress") == Approx(34).epsilon(1e-9));
}

TEST_CASE("later iterations take as long as the first") {
  auto job = figure6();
  job.iterations = 3;
  for (const auto& i : run(job, "atlas").report.iterations)
    CHECK(i.end_s - i.begin_s == Approx(36).epsilon(1e-9));
}

TEST_CASE("sixty stages over five datacenters take the slots of an independent simulation") {
  CHECK(slots(sixty_stages(5, 2), "varuna") == Approx(484).epsilon(1e-9));
  CHECK(slots(sixty_stages(5, 2), "varuna-forward-first") == Approx(431).epsilon(1e-9));
  CHECK(slots(sixty_stages(5, 2), "atlas") == Approx(483).epsilon(1e-9));
  CHECK(slots(sixty_stages(5, 2), "atlas-least-progress") == Approx(425).epsilon(1e-9));
  CHECK(slots(sixty_stages(5, 3), "varuna") == Approx(540).epsilon(1e-9));
  CHECK(slots(sixty_stages(5, 3), "atlas-least-progress") == Approx(429).epsilon(1e-9));
}

TEST_CASE("the graph runs a searched schedule in as many slots as the search predicts") {
  int searched = 0;
  for (std::uint32_t i = 0; i < 12; ++i) {
    auto job = figure6();
    job.pipeline.stages = 4 + i % 3;
    job.pipeline.data_parallel = 2 + i / 6;
    job.pipeline.microbatches = 4 + 2 * (i % 2);
    job.pipeline.stages_per_datacenter = 1 + i % 2;
    job.slots->wan = 2 + i % 4;
    const auto& p = job.pipeline;
    planners::pipeline_shape shape{
        p.stages, p.data_parallel, p.microbatches, {}, 0, {}, {1, 1, 2, 0, job.slots->wan, 0}};
    shape.stages_of_datacenter = troupe::test::split_evenly(p.stages, p.stages_per_datacenter);
    shape.cell = planners::cell_of(shape.costs, p.data_parallel);
    const auto best = planners::schedule_pipeline(shape, "best");
    REQUIRE(best);
    searched += best->made_by.ends_with("searched");
    INFO(p.stages << " stages, " << p.data_parallel << " pipelines, " << best->made_by);
    CHECK(slots(job, "best") == Approx(best->length).epsilon(1e-9));
  }
  CHECK(searched >= 4);
}

TEST_CASE(
    "GPUs sharing a stage are faster than one over NVLink, and slower over PCIe if the model is "
    "small") {
  auto job = harness::small_job("shared", 3, 8);
  job.train.emplace();
  job.train->schedule = "varuna";
  job.pipeline.stages = 2;
  job.pipeline.data_parallel = 1;
  job.pipeline.microbatches = 4;
  const auto of = [&](std::uint32_t t, double gbps) {
    job.pipeline.tensor_parallel = t;
    auto c = *harness::small_cluster();
    for (auto& n : c.nodes) n.intra.gbps = gbps;
    training_simulation_options o;
    o.cluster = std::make_shared<const cluster>(c);
    o.job = job;
    auto done = simulate_training(o);
    if (!done) FAIL(done.error().text);
    CHECK(done->report.tensor_parallel == t);
    CHECK(done->report.iterations.size() == 3);
    const auto& last = done->report.iterations.back();
    return last.end_s - last.begin_s;
  };
  const double one = of(1, 256), pcie = of(2, 256), nvlink = of(2, 4800);
  CHECK(nvlink < one);
  CHECK(nvlink > one / 2);
  CHECK(pcie > one);  // for so small a model the all-reduces take longer
}

TEST_CASE("a training run is a function of its seed") {
  const auto one = run(figure6(), "atlas"), two = run(figure6(), "atlas");
  CHECK(one.fingerprint == two.fingerprint);
  CHECK(one.report == two.report);
}

TEST_CASE("stages that take minutes to start are waited for, and iterations exclude that time") {
  auto job = figure6();
  job.train->schedule = "atlas";
  auto c = cluster_of_slots(job);
  c.settings.restart_s = 400;
  training_simulation_options o;
  o.cluster = std::make_shared<const cluster>(c);
  o.job = job;
  const auto done = simulate_training(o);
  REQUIRE(done);
  const auto& last = done->report.iterations.back();
  CHECK(last.begin_s >= 400);
  CHECK(last.end_s - last.begin_s == Approx(36).epsilon(1e-9));
}

TEST_CASE("a pipeline's stages keep the activations that the memory limit allows") {
  auto job = figure6();
  job.pipeline.max_in_flight = 2;
  for (const auto held : run(job, "varuna").report.max_in_flight) CHECK(held <= 2);
}

TEST_CASE(
    "a training whose nodes crash resumes from its checkpoints and reports every iteration once") {
  auto job = harness::small_job("survivor", 40, 8);
  job.train.emplace();
  job.train->checkpoint_every = 5;
  job.train->schedule = "varuna";
  training_simulation_options o;
  o.cluster = harness::small_cluster();
  o.job = job;
  o.faults.until_s = 1e6;
  o.faults.node_crashes_per_hour = 30;
  o.faults.mean_down_s = 20;
  auto done = simulate_training(o);
  if (!done) FAIL(done.error().text);
  const auto& r = done->report;
  REQUIRE_FALSE(r.iterations.empty());
  CHECK(r.iterations.back().iteration == 40);
  for (std::size_t i = 0; i < r.iterations.size(); ++i) CHECK(r.iterations[i].iteration == i + 1);
}
