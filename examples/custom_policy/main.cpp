// Write a policy of your own: shortest job first, in one class. See README.md.
#include <algorithm>
#include <cstdio>

#include "planners/core/policy.hpp"
#include "planners/frenzy/has.hpp"
#include "planners/frenzy/marp.hpp"

using namespace troupe;
using namespace troupe::planners;

class shortest_first : public policy {
 public:
  std::string_view name() const override { return "shortest_first"; }

  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    std::vector<const job_view*> jobs;
    for (const auto& [id, job] : s.waiting) jobs.push_back(&job);
    std::ranges::stable_sort(jobs, {}, [](const job_view* j) {
      return double(j->spec->iterations) * j->spec->global_batch / j->plans->front().samples_per_s;
    });
    std::vector<decision> out;
    auto idle = s.idle;  // a copy: what is left after each start
    for (const auto* j : jobs) {
      const auto choice = has(s.cluster, idle, *j->plans, j->bytes_floor);
      if (!choice) continue;
      for (const auto& share : choice->where)
        idle.set_idle(share.node, idle.idle(share.node) - share.gpus);
      out.push_back({decision::kind::start, j->id, (*j->plans)[choice->plan], choice->where, {}});
    }
    return out;
  }

  reason why_waiting(const snapshot&, job_id) const override {
    return {reason::kind::insufficient, "shorter jobs come first"};
  }
};

int main() {
  const gpu_type a100{"A100-40GB", 40, 312, 19.5, 1555, 0.45, 3.67, ""};
  const cluster c{
      "small", "", {a100}, {{"dc", ""}}, {{"a", 0, 0, 2, {"pcie4", 252, 5}, {"ib100", 100, 2}}},
      {},      {}};
  job_views waiting, running;
  for (job_id id = 1; id <= 3; ++id) {
    job_spec job;
    job.model = {"gpt2-350m", "gpt", 1024, 24, 16, 0, 0, 1024, 50257, true, {}};
    job.global_batch = 4;
    job.iterations = 4000 / id;  // the last one is the shortest
    auto& view = waiting[id];
    view.id = id;
    view.spec = std::make_shared<job_spec>(job);
    view.plans = std::make_shared<std::vector<plan>>(marp(c, job).value());
  }
  const idle_index idle(c);
  random_source random(1);
  for (const auto& d : shortest_first().decide({0, c, idle, waiting, running}, random))
    std::printf("start job %d on %u GPU\n", int(d.job), d.how.gpus());
}
