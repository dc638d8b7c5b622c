#include "harness/recorded.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/policy/bound_warning.hpp"
#include "planners/policy/estimate.hpp"
#include "planners/scene.hpp"
#include "planners/variety.hpp"

// The decisions of every policy, in clusters whose jobs arrive, run out of memory and end.

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::scene;
using troupe::test::numbers_in;
using troupe::test::recording;
using troupe::test::values;

namespace {

std::string decision_text(const decision& d) {
  auto out = values(int(d.what), d.job);
  if (d.what == decision::kind::give_up)
    return out + " " + values(int(d.why.code)) + " " + numbers_in(d.why.text);
  if (d.what != decision::kind::start) return out;
  out += " " + values(d.how.data_parallel, d.how.tensor_parallel, d.how.pipeline_parallel,
                      d.how.samples_per_s, d.how.bytes_per_gpu, d.how.cost_per_hour);
  for (const auto& share : d.where) out += " " + values(share.node) + ":" + values(share.gpus);
  return out;
}

job_spec some_job(random_source& r, const cluster& c) {
  if (r.chance(0.2)) {
    auto job = variety::some_training(r);
    if (r.chance(0.5)) job.pipeline.stages = 1 + std::uint32_t(r.below(4));
    if (r.chance(0.3)) job.pipeline.data_parallel = 1U << r.below(2);
    if (job.slots && job.pipeline.stages == 0) job.pipeline.stages = 2;
    if (r.chance(0.1)) job.deadline_s = 100 * r.uniform();
    if (r.chance(0.1)) job.budget = r.uniform();
    return job;
  }
  auto job = variety::some_program(r, c);
  if (r.chance(0.15)) job.command = {"train"};
  if (r.chance(0.2)) job.deadline_s = 3600 * 1000 * r.uniform();
  if (r.chance(0.1)) {  // a small model, since its pipelines are searched
    job.model = sample::gpt("few", 512, 3, 8, 512, 16'000);
    job.memory.reset();
    job.slo_s = 3600 * 100 * r.uniform();
    if (r.chance(0.5)) job.budget = 1000 * r.uniform();
  }
  return job;
}

/// The world between two decisions: a job that ran ends, runs out of memory or is set back.
void go_on(scene& s, random_source& r) {
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
      back.iterations_done += r.below(20);
      back.rows = j.how.rows;
      s.waiting[at->first] = back;
    }
    at = s.running.erase(at);
  }
}

}  // namespace

TEST_CASE("a policy makes the recorded decisions, with the recorded figures for waiting jobs") {
  for (const char* name : {"frenzy", "opportunistic", "fcfs", "sia", "espresso", "troupe"}) {
    recording all{"planners", "policy_" + std::string{name}};
    const auto p = with_trainings(make_policy(name));
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      all.begin(seed);
      random_source r{seed};
      scene s(variety::some_cluster(r));
      s.idle = idle_index{s.cluster};
      job_id next = 1;
      for (int step = 0; step < 6; ++step) {
        for (auto k = 1 + r.below(4); k > 0; --k) {
          auto& j = s.add(next++, some_job(r, s.cluster));
          j.training = runs_as_pipelines(*j.spec, j.plans.get());
          j.submitted_s = s.now_s;
        }
        random_source own{1};
        const auto d = p->decide(s.view(), own);
        for (const auto& x : d) all.add(step, decision_text(x));
        carry_out(s, d);
        for (const auto& [id, j] : s.waiting) {
          const auto why = p->why_waiting(s.view(), id);
          all.add(id, int(why.code), numbers_in(why.text));
        }
        for (const auto& [id, j] : s.running) {
          const auto e = estimate_start(s.cluster, *j.spec, j.how, j.where);
          all.add(id, e.iteration_s, e.bytes_per_gpu, e.out_of_memory);
        }
        go_on(s, r);
      }
    }
    all.check();
  }
}

TEST_CASE("every job's plans are the recorded ones, best first") {
  recording all{"planners", "plans"};
  random_source r{6};
  for (int i = 0; i < 200; ++i) {
    if (i % 5 == 0) all.begin(i);
    const auto c = variety::some_cluster(r);
    const auto job = some_job(r, c);
    planning_budget budget;
    const auto plans = plans_for(c, job, budget);
    all.add(plans ? values(i, plans->size(), budget.left())
                  : values(i, int(plans.error().code)) + " " + numbers_in(plans.error().text));
    if (!plans) continue;
    for (const auto& how : *plans) {
      auto line =
          values(how.data_parallel, how.tensor_parallel, how.pipeline_parallel, how.samples_per_s,
                 how.bytes_per_gpu, how.cost_per_hour, how.tensor_in_node);
      for (const auto g : how.gpu_types) line += " T" + std::to_string(g);
      all.add(line);
    }
    all.add(numbers_in(bound_warning(c, job, *plans, *make_policy("frenzy"))));
  }
  all.check();
}
