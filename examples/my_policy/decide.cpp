// A snapshot and a decision: three jobs wait for one node of two GPUs. Nothing runs, no clock is
// read.
#include <cstdio>
#include <memory>

#include "planners/plans/marp.hpp"
#include "shortest_first.hpp"

using namespace troupe;
using namespace troupe::planners;

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
  const snapshot now{0, c, idle, waiting, running};
  for (const auto& d : shortest_first().decide(now, random))
    std::printf("start job %d on %u GPU\n", int(d.job), d.how.gpus());
}
