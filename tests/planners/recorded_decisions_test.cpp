#include "harness/recorded.hpp"
#include "planners/policy/bound_warning.hpp"
#include "planners/policy/estimate.hpp"
#include "planners/random_life.hpp"
#include "planners/scene.hpp"

// The decisions of every policy, in clusters whose jobs arrive, run out of memory and end.

using namespace troupe;
using namespace troupe::planners;
using random_life::go_on;
using random_life::some_job;
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
        random_life::arrive(s, r, next, 1 + r.below(4));
        random_source own{1};
        s.notes.clear();
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
