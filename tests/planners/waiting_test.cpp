#include <catch2/catch.hpp>

#include "harness/facts.hpp"
#include "planners/scene.hpp"

using namespace troupe;
using namespace troupe::planners;
using troupe::test::has_facts;

namespace {

/// Six nodes of one GPU each.
cluster single_gpus() {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 6, 1);
  return c;
}

job_spec training_of(std::uint32_t stages, std::uint32_t pipelines) {
  auto job = sample::job(sample::gpt("tiny", 64, 6, 4, 64, 256), 16);
  job.train.emplace();
  job.train->device = "cpu";
  job.pipeline.stages = stages;
  job.pipeline.data_parallel = pipelines;
  job.pipeline.microbatches = 4;
  return job;
}

/// A training among that many idle GPUs.
struct waiting_training {
  scene_of_policies::scene s{single_gpus()};

  waiting_training(const job_spec& job, std::uint32_t idle) {
    s.add(1, job);
    for (node_index n = idle; n < 6; ++n) s.idle.set_idle(n, 0);
    s.now_s = s.waiting[1].submitted_s;
  }
  job_view& job() { return s.waiting[1]; }
  std::string why() { return why_training_waits(s.view(), job()).text; }
  bool starts() {
    std::vector<decision> out;
    std::optional<idle_index> room;
    start_trainings(s.view(), out, room);
    return !out.empty() && out[0].what == decision::kind::start;
  }
};

}  // namespace

TEST_CASE("a training with all sizes given waits for exactly so many GPUs") {
  waiting_training few{training_of(2, 2), 3};
  CHECK(has_facts(few.why(), {"4 GPUs", "2 pipelines", "2 stages", "3"}));
  CHECK_FALSE(few.starts());
  waiting_training enough{training_of(2, 2), 4};
  CHECK_FALSE(has_facts(enough.why(), {"4 GPUs"}));  // it has them, once its turn comes
  CHECK(enough.starts());
  waiting_training none{training_of(2, 2), 0};
  CHECK(has_facts(none.why(), {"4 GPUs", "2 pipelines", "2 stages", "0"}));
}

TEST_CASE("a training of free size does not start on few GPUs until it has waited for a lease") {
  waiting_training t{training_of(0, 0), 1};
  const auto best = t.job().plans->front().gpus();
  REQUIRE(best > 2);
  CHECK_FALSE(t.starts());
  CHECK(has_facts(t.why(), {std::to_string(best) + " GPUs", "1"}));
  t.s.now_s += t.s.cluster.settings.lease_s - 1;
  CHECK_FALSE(t.starts());
  t.s.now_s += 1;
  CHECK(t.starts());
  waiting_training again{training_of(0, 0), 1};
  again.job().attempts = 1;
  CHECK(again.starts());
  waiting_training all{training_of(0, 0), best};
  CHECK(all.starts());
}

TEST_CASE("a training without a plan is given up, with the reason") {
  auto job = training_of(2, 1);
  job.required_gpu_type = "H100";
  waiting_training t{job, 6};
  REQUIRE(t.job().plans->empty());
  CHECK(t.why() == t.job().why.text);
  std::vector<decision> out;
  std::optional<idle_index> room;
  start_trainings(t.s.view(), out, room);
  REQUIRE(out.size() == 1);
  CHECK(out[0].what == decision::kind::give_up);
  CHECK(out[0].why.text == t.job().why.text);
}

TEST_CASE("a job's bounds are warned of where its best plan without them is another") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  sample::add_nodes(c, sample::gpu("slow", 80, 50), 1, 1);
  const auto warned = [&](const job_spec& job) {
    const auto plans = plans_for(c, job);
    REQUIRE(plans);
    return bound_warning(c, job, *plans);
  };
  auto job = sample::job(sample::gpt2_350m, 8);
  job.objective = "fastest";
  CHECK(warned(job).empty());
  job.max_gpus = 1000;
  CHECK(warned(job).empty());
  job.max_gpus = 1;
  CHECK(has_facts(warned(job), {"gpus: 1", "1 GPU at", "GPUs at"}));
  job.max_gpus = 2;
  CHECK(has_facts(warned(job), {"gpus: 2", "2 GPUs at"}));
  job.required_gpu_type = "slow";
  CHECK(has_facts(warned(job), {"gpus: 2", "gpu_type: slow", "1 GPU at"}));
  job.max_gpus.reset();
  CHECK(has_facts(warned(job), {"gpu_type: slow", "1 GPU at"}));
  CHECK_FALSE(has_facts(warned(job), {"gpus:"}));
  CHECK(bound_warning(c, job, {}).empty());
}

TEST_CASE("a training must meet its limits of time and cost, which a study's slots do not have") {
  const auto c = single_gpus();
  auto job = training_of(2, 1);
  CHECK(plans_for(c, job));
  job.deadline_s = 1e-6;
  const auto late = plans_for(c, job);
  REQUIRE_FALSE(late);
  CHECK(late.error().code == reason::kind::infeasible);
  CHECK(has_facts(late.error().text, {"deadline_s"}));
  job.slots = slot_costs{};
  CHECK(plans_for(c, job));
}
