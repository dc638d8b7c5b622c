#include <catch2/catch.hpp>

#include "harness/facts.hpp"
#include "planners/policy/bound_warning.hpp"
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
    s.notes.clear();
    std::vector<decision> out;
    std::optional<idle_index> room;
    start_trainings(s.view(), out, room);
    return !out.empty() && out[0].what == decision::kind::start;
  }
};

}  // namespace

TEST_CASE("a training with all sizes given waits for exactly that many GPUs") {
  waiting_training few{training_of(2, 2), 3};
  CHECK_FALSE(few.starts());
  CHECK(has_facts(few.why(), {"4 GPUs", "2 pipelines", "2 stages", "3"}));
  waiting_training enough{training_of(2, 2), 4};
  CHECK_FALSE(has_facts(enough.why(), {"4 GPUs"}));  // nobody has decided about it
  CHECK(enough.starts());
  waiting_training none{training_of(2, 2), 0};
  CHECK_FALSE(none.starts());
  CHECK(has_facts(none.why(), {"4 GPUs", "2 pipelines", "2 stages", "0"}));
}

TEST_CASE("a training of free size starts on few GPUs only after waiting for the time of a lease") {
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
  again.job().progress.attempts = 1;
  CHECK(again.starts());
  waiting_training all{training_of(0, 0), best};
  CHECK(all.starts());
}

TEST_CASE("a resumed training keeps its number of pipelines unless another is much faster") {
  int kept = 0, left = 0;
  for (const std::uint32_t before : {1U, 2U}) {
    CAPTURE(before);
    const auto placed = [&](std::uint32_t pipelines, std::uint32_t last) {
      waiting_training t{training_of(2, pipelines), 6};
      t.job().progress.attempts = 1;
      t.job().data_parallel = last;
      std::vector<decision> out;
      std::optional<idle_index> room;
      start_trainings(t.s.view(), out, room);
      REQUIRE(out.size() == 1);
      return out[0].how;
    };
    const auto free = placed(0, 0), same = placed(before, 0), again = placed(0, before);
    REQUIRE(same.data_parallel == before);
    const bool keeps = free.samples_per_s < 1.25 * same.samples_per_s;
    CHECK(again.data_parallel == (keeps ? before : free.data_parallel));
    (keeps ? kept : left) += 1;
  }
  CHECK(kept > 0);
  CHECK(left > 0);
}

TEST_CASE("a training without a plan is given up, with the reason") {
  auto job = training_of(2, 1);
  job.limits.required_gpu_type = "H100";
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

TEST_CASE("a job is warned when its bounds exclude its best plan") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  sample::add_nodes(c, sample::gpu("slow", 80, 50), 1, 1);
  const auto warned = [&](const job_spec& job) {
    const auto plans = plans_for(c, job);
    REQUIRE(plans);
    return bound_warning(c, job, *plans, *make_policy("frenzy"));
  };
  auto job = sample::job(sample::gpt2_350m, 8);
  job.objective = "fastest";
  CHECK(warned(job).empty());
  job.limits.max_gpus = 1000;
  CHECK(warned(job).empty());
  job.limits.max_gpus = 1;
  CHECK(has_facts(warned(job), {"gpus: 1", "1 GPU at", "GPUs at"}));
  job.limits.max_gpus = 2;
  CHECK(has_facts(warned(job), {"max_gpus: 2", "2 GPUs at"}));
  job.limits.required_gpu_type = "slow";
  CHECK(has_facts(warned(job), {"max_gpus: 2", "gpu_type: slow", "1 GPU at"}));
  job.limits.max_gpus.reset();
  CHECK(has_facts(warned(job), {"gpu_type: slow", "1 GPU at"}));
  CHECK_FALSE(has_facts(warned(job), {"gpus:"}));
  CHECK(bound_warning(c, job, {}, *make_policy("frenzy")).empty());
}

TEST_CASE("a training must meet its time and cost limits; a study in slots has none") {
  const auto c = single_gpus();
  auto job = training_of(2, 1);
  CHECK(plans_for(c, job));
  job.limits.deadline_s = 1e-6;
  const auto late = plans_for(c, job);
  REQUIRE_FALSE(late);
  CHECK(late.error().code == reason::kind::infeasible);
  CHECK(has_facts(late.error().text, {"deadline_s"}));
  job.slots = slot_costs{};
  CHECK(plans_for(c, job));
}

TEST_CASE("policies that use plans give up a job without plans, with a reason") {
  for (const auto name : {"frenzy", "espresso", "troupe"}) {
    CAPTURE(name);
    scene_of_policies::scene s{single_gpus()};
    s.add(1, sample::job(sample::gpt2_small, 4)).plans = nullptr;
    s.add(2, sample::job(sample::gpt2_small, 4));
    random_source r{1};
    std::size_t given_up = 0, started = 0;
    for (const auto& d : make_policy(name)->decide(s.view(), r)) {
      given_up += d.what == decision::kind::give_up && d.job == 1 && !d.why.text.empty();
      started += d.what == decision::kind::start && d.job == 2;
    }
    CHECK(given_up == 1);
    CHECK(started == 1);
    CHECK_FALSE(scene_of_policies::why_of(*make_policy(name), s, 1).text.empty());
  }
}

TEST_CASE("a queue of 300 jobs, each with its own plans, starts in one decision") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 40, 8);
  scene_of_policies::scene s{c};
  for (job_id id = 1; id <= 300; ++id) s.add(id, sample::job(sample::gpt2_small, 1));
  random_source r{1};
  const auto d = make_policy("frenzy")->decide(s.view(), r);
  CHECK(d.size() == 300);
  scene_of_policies::carry_out(s, d);
}

TEST_CASE("a training with shared stages waits for all GPUs of its stages") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 3, 2);
  auto job = training_of(2, 1);
  job.train->device = "sim";
  job.pipeline.tensor_parallel = 2;
  scene_of_policies::scene s{c};
  auto& j = s.add(1, job);
  s.now_s = j.submitted_s;
  s.idle.set_idle(1, 1), s.idle.set_idle(2, 0);
  std::vector<decision> out;
  std::optional<idle_index> room;
  start_trainings(s.view(), out, room);
  CHECK(out.empty());
  CHECK(
      has_facts(why_training_waits(s.view(), j).text, {"4 GPUs", "1 pipelines", "2 stages", "3"}));
  s.idle.set_idle(1, 2);
  start_trainings(s.view(), out, room);
  REQUIRE(out.size() == 1);
  CHECK(total_gpus(out[0].where) == 4);
}
