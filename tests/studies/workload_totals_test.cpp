#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "harness/small_cluster.hpp"
#include "messages/base/statistics.hpp"
#include "studies/training_simulation.hpp"
#include "studies/workload_simulation.hpp"

// The totals in a simulated workload's row, from the record of its jobs.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::studies;
using planners::decision;

namespace {

/// Decides about each job by its name, in rounds of ten seconds.
class by_name final : public planners::policy {
 public:
  std::string_view name() const override { return "by-name"; }
  planners::policy_traits traits() const override { return {.round_s = 10}; }
  reason why_waiting(const planners::snapshot&, job_id) const override { return {}; }

  std::vector<decision> decide(const planners::snapshot& s, random_source&) const override {
    std::vector<decision> out;
    for (const auto& [id, j] : s.waiting) {
      const auto& what = j.spec->name;
      if (what == "impossible") {
        out.push_back({decision::kind::give_up, id, {}, {}, {reason::kind::infeasible, "no way"}});
        continue;
      }
      if (what == "suspended" && j.progress.attempts == 1 && s.now_s < 300) continue;
      auto d = start(id, node_of(what), what == "shrinks" ? 2 : 1);
      if (what == "too-large" && j.progress.attempts == 0) d.expected->out_of_memory = true;
      out.push_back(d);
    }
    for (const auto& [id, j] : s.running) {
      const auto& what = j.spec->name;
      if (s.now_s < 105 || j.progress.attempts > 1) continue;
      if (what == "suspended") out.push_back({decision::kind::stop, id, {}, {}, {}});
      if (what != "grows" && what != "shrinks") continue;
      auto d = start(id, node_of(what), what == "grows" ? 2 : 1);
      d.what = decision::kind::move;
      out.push_back(d);
    }
    return out;
  }

 private:
  static node_index node_of(const std::string& what) {
    return what == "grows" ? 1 : what == "shrinks" ? 2 : what == "suspended" ? 3 : 4;
  }
  static decision start(job_id job, node_index n, std::uint32_t gpus) {
    plan how;
    how.data_parallel = gpus;
    how.bytes_per_gpu = 1;
    decision d{decision::kind::start, job, how, {{n, gpus}}, {}};
    d.expected = planners::start_estimate{};
    d.expected->bytes_per_gpu = 1;
    d.expected->iteration_s = 1;
    return d;
  }
};

job_spec job_of(const std::string& name, std::uint64_t iterations) {
  return harness::small_job(name, iterations);
}

policy_result run(const std::vector<job_spec>& jobs, std::shared_ptr<const planners::policy> how) {
  simulation_options o;
  o.cluster = harness::small_cluster();
  std::vector<arrival> workload;
  for (const auto& j : jobs) workload.push_back({static_cast<double>(workload.size()), j});
  const auto made = simulate(o, workload, std::move(how));
  INFO((made ? std::string{} : made.error().text));
  REQUIRE(made);
  return *made;
}

/// The row's totals are those of the jobs' records.
void check_totals(const policy_result& r) {
  std::size_t finished = 0, failed = 0, moves = 0, ups = 0, downs = 0, suspended = 0, dropped = 0,
              out_of_memory = 0;
  std::uint64_t lost = 0;
  double restarts = 0, last_s = 0;
  std::vector<double> completion, queued, throughput;
  for (const auto& [id, j] : r.record->jobs()) {
    finished += j.state == job_state::finished;
    failed += j.state == job_state::failed;
    dropped += j.state == job_state::failed && j.attempts == 0;
    moves += j.moves, ups += j.scale_ups, downs += j.scale_downs, suspended += j.suspended;
    out_of_memory += j.out_of_memory;
    lost += j.lost_iterations;
    restarts += j.attempts > 1 ? j.attempts - 1 : 0;
    last_s = std::max(last_s, j.ended_s);
    if (j.state != job_state::finished) continue;
    completion.push_back(j.completion_s());
    queued.push_back(j.queued_s());
    throughput.push_back(j.samples / j.held_s);
  }
  CHECK(r.jobs == r.record->jobs().size());
  CHECK(r.finished == finished);
  CHECK(r.failed == failed);
  CHECK(r.dropped == dropped);
  CHECK(r.moves == moves);
  CHECK(r.scale_ups == ups);
  CHECK(r.scale_downs == downs);
  CHECK(r.suspended == suspended);
  CHECK(r.oom_failures == out_of_memory);
  CHECK(r.lost_iterations == lost);
  CHECK(r.restarts_per_job == Approx(restarts / static_cast<double>(r.jobs)));
  CHECK(r.makespan_s == Approx(last_s - r.record->jobs().begin()->second.submitted_s));
  CHECK(r.average_jct_s == Approx(statistics::mean(completion)));
  CHECK(r.p50_jct_s == Approx(statistics::quantile(completion, 0.5)));
  CHECK(r.p99_jct_s == Approx(statistics::quantile(completion, 0.99)));
  CHECK(r.average_queue_s == Approx(statistics::mean(queued)));
  CHECK(r.average_throughput == Approx(statistics::mean(throughput)));
}

}  // namespace

TEST_CASE("a row counts what befell the jobs: moves, suspensions, restarts, failures, losses") {
  const auto r = run({job_of("grows", 300), job_of("shrinks", 300), job_of("suspended", 300),
                      job_of("too-large", 300), job_of("impossible", 300), job_of("plain", 50)},
                     std::make_shared<by_name>());
  check_totals(r);
  CHECK(r.policy == "by-name");
  CHECK(r.jobs == 6);
  CHECK(r.finished == 5);
  CHECK(r.failed == 1);
  CHECK(r.dropped == 1);
  CHECK(r.moves == 2);
  CHECK(r.scale_ups == 1);
  CHECK(r.scale_downs == 1);
  CHECK(r.suspended == 1);
  CHECK(r.oom_failures == 1);
  CHECK(r.restarts_per_job == Approx(4.0 / 6));
  CHECK(r.with_deadline == 0);
  CHECK(r.decision_max_us >= r.decision_p99_us);
  CHECK(r.decision_mean_us > 0);
}

TEST_CASE("a deadline is met by a job that has finished in time, up to the last moment") {
  const auto by = std::make_shared<by_name>();
  const auto took_s = run({job_of("plain", 50)}, by).average_jct_s;
  const auto met = [&](double deadline_s) {
    auto job = job_of("plain", 50);
    job.limits.deadline_s = deadline_s;
    const auto r = run({job, job_of("impossible", 50)}, by);
    CHECK(r.with_deadline == 1);
    check_totals(r);
    return r.met_deadline;
  };
  CHECK(met(took_s) == 1);
  CHECK(met(took_s + 1) == 1);
  CHECK(met(took_s - 1) == 0);
  // A job that fails has not met its deadline, however soon it failed.
  auto job = job_of("impossible", 50);
  job.limits.deadline_s = 1e6;
  const auto r = run({job}, by);
  CHECK(r.with_deadline == 1);
  CHECK(r.met_deadline == 0);
}

TEST_CASE("jobs of one instant are numbered in the workload's order, however long their names") {
  simulation_options o;
  o.cluster = harness::small_cluster();
  o.policy = "fcfs";
  std::vector<arrival> workload;
  for (const std::size_t length : {60, 1, 30, 64, 2})
    workload.push_back({5, job_of(std::string(length, 'a'), 10)});
  const auto r = simulate(o, workload);
  INFO((r ? std::string{} : r.error().text));
  REQUIRE(r);
  std::vector<std::size_t> lengths;
  for (const auto& [id, j] : r->record->jobs()) lengths.push_back(j.name.size());
  CHECK(lengths == std::vector<std::size_t>{60, 1, 30, 64, 2});
}

TEST_CASE("no jobs make an empty row") {
  const auto r = run({}, std::make_shared<by_name>());
  CHECK(r.jobs == 0);
  CHECK(r.restarts_per_job == 0);
  CHECK(r.gpu_utilization == 0);
  CHECK(r.cluster_throughput_avg == 0);
  CHECK(r.makespan_s == 0);
}

TEST_CASE("a study in slots has a node a stage, and links of its slots") {
  job_spec job;
  job.slots = slot_costs{1, 1, 2, 3, 4};
  job.pipeline.stages = 5;
  job.pipeline.data_parallel = 2;
  job.pipeline.stages_per_datacenter = 2;
  const auto c = cluster_of_slots(job);
  REQUIRE(c.datacenters.size() == 3);
  CHECK(c.datacenters[0].name == "dc1");
  CHECK(c.datacenters[2].name == "dc3");
  REQUIRE(c.nodes.size() == 10);
  for (std::uint32_t i = 0; i < 10; ++i) {
    CHECK(c.nodes[i].datacenter == i / 4);
    CHECK(c.nodes[i].gpus == 1);
    CHECK(c.nodes[i].name == "p" + std::to_string(i % 2) + "-s" + std::to_string(i / 2));
    CHECK(c.nodes[i].inter.latency_us == 3e6);
    CHECK(c.nodes[i].intra.latency_us == 3e6);
  }
  REQUIRE(c.wan.size() == 3);
  for (const auto& w : c.wan) {
    CHECK(w.a < w.b);
    CHECK(w.node_gbps == 0.25);  // a Gbit in 4 s
  }
  job.slots->wan = 0;
  CHECK(cluster_of_slots(job).wan[0].node_gbps == 1e15);
  job.pipeline = {};
  const auto one = cluster_of_slots(job);
  CHECK(one.nodes.size() == 1);
  CHECK(one.datacenters.size() == 1);
  CHECK(one.wan.empty());
}
