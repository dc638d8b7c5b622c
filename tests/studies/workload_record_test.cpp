#include "studies/workload_simulation.hpp"

#include <catch2/catch.hpp>

#include "harness/small_cluster.hpp"

using namespace troupe;
using namespace troupe::studies;

namespace {

/// A record of jobs of 100 iterations of 8 samples, made entry by entry.
struct sent_record {
  workload_record r;

  void accepted(job_id job, double at_s) {
    job_spec s;
    s.name = "one";
    s.global_batch = 8;
    s.iterations = 100;
    r.take(job_accepted{job, job, at_s, s, "somebody"});
  }
  void granted(lease_id lease, job_id job, double at_s, std::uint32_t gpus,
               double iteration_s = 2) {
    lease_granted g;
    g.lease = lease;
    g.job = job;
    g.at_s = at_s;
    g.how.data_parallel = gpus;
    g.iteration_s = iteration_s;
    g.start_s = 5;
    lease_part p{node_index{0}, 1, {}};
    p.devices.resize(gpus);
    g.parts = {p};
    r.take(g);
  }
  void preempted(lease_id lease, double at_s, std::uint64_t kept,
                 lease_outcome why = lease_outcome::preempted) {
    lease_revoked v;
    v.lease = lease;
    v.at_s = at_s;
    v.why = why;
    r.take(v);
    r.take(part_ended{lease, 0, at_s, why, kept, 0, ""});
  }
  void finished(lease_id lease, job_id job, double at_s) {
    r.take(part_ended{lease, 0, at_s, lease_outcome::succeeded, 100, 0, ""});
    job_ended e;
    e.job = job;
    e.at_s = at_s;
    e.final_state = job_state::finished;
    r.take(e);
  }
  const job_outcome& job(job_id id) const { return r.jobs().at(id); }
};

}  // namespace

TEST_CASE("a job's record has its waiting time, its GPU time and its work") {
  sent_record t;
  t.accepted(1, 10);
  t.granted(1, 1, 30, 4);
  t.finished(1, 1, 130);
  const auto& j = t.job(1);
  CHECK(j.submitted_s == 10);
  CHECK(j.started_s == 30);
  CHECK(j.completion_s() == 120);
  CHECK(j.queued_s() == 20);
  CHECK(j.held_s == 100);
  CHECK(j.gpu_seconds == 400);
  CHECK(j.samples == 800);
  CHECK(j.attempts == 1);
  CHECK(j.state == job_state::finished);
  CHECK(t.r.ended() == 1);
  CHECK(t.r.progress() == 3);
}

TEST_CASE("GPUs held, jobs waiting and throughput are recorded at every change") {
  sent_record t;
  t.accepted(1, 10);
  t.accepted(2, 10);
  t.granted(1, 1, 30, 4);
  t.granted(2, 2, 40, 2, 4);
  t.finished(1, 1, 130);
  t.finished(2, 2, 150);
  const auto& u = t.r.usage();
  REQUIRE(u.size() == 5);
  const auto is = [](const usage_point& p, double at_s, std::uint32_t gpus, std::uint32_t waiting,
                     double rate) {
    CHECK(p.at_s == at_s);
    CHECK(p.gpus_held == gpus);
    CHECK(p.jobs_waiting == waiting);
    CHECK(p.samples_per_s == rate);
  };
  is(u[0], 10, 0, 2, 0);
  is(u[1], 30, 4, 1, 4);
  is(u[2], 40, 6, 0, 6);
  is(u[3], 130, 2, 0, 2);
  is(u[4], 150, 0, 0, 0);
}

TEST_CASE("a job that continues elsewhere at once has moved, one that waits longer was suspended") {
  sent_record t;
  t.accepted(1, 0);
  t.granted(1, 1, 10, 4);
  t.preempted(1, 45, 10);  // after 15 iterations
  CHECK(t.job(1).lost_iterations == 5);
  t.granted(2, 1, 50, 8);  // as long as starting takes
  CHECK(t.job(1).moves == 1);
  CHECK(t.job(1).scale_ups == 1);
  CHECK(t.job(1).scale_downs == 0);
  t.preempted(2, 75, 50);  // it saved more than this lease had computed
  CHECK(t.job(1).lost_iterations == 5);
  t.granted(3, 1, 80.5, 2);
  CHECK(t.job(1).moves == 1);
  CHECK(t.job(1).suspended == 1);
  CHECK(t.job(1).scale_ups == 1);
  CHECK(t.job(1).scale_downs == 1);
  t.preempted(3, 82, 0);  // still starting
  CHECK(t.job(1).lost_iterations == 5);
  t.granted(4, 1, 83, 2);
  CHECK(t.job(1).scale_downs == 1);
  CHECK(t.job(1).moves == 2);
  t.preempted(4, 100, 0, lease_outcome::lost);  // a node's failure is no move
  t.granted(5, 1, 101, 2);
  CHECK(t.job(1).moves == 2);
  CHECK(t.job(1).suspended == 1);
  CHECK(t.job(1).attempts == 5);
  CHECK(t.job(1).started_s == 10);
}

TEST_CASE("work that runs out of memory is counted, and has no throughput meanwhile") {
  sent_record t;
  t.accepted(1, 0);
  lease_granted g;
  g.lease = 1, g.job = 1, g.at_s = 10, g.iteration_s = 2;
  g.out_of_memory = true;
  g.parts = {{0, 1, {0}}, {1, 1, {0}}};
  g.how.data_parallel = 2;
  t.r.take(g);
  CHECK(t.r.usage().back().samples_per_s == 0);
  t.r.take(part_ended{1, 0, 20, lease_outcome::out_of_memory, 0, 0, ""});
  CHECK(t.r.usage().back().gpus_held == 1);
  CHECK(t.job(1).out_of_memory == 0);
  t.r.take(part_ended{1, 1, 25, lease_outcome::failed, 0, 0, ""});
  CHECK(t.job(1).out_of_memory == 1);
  CHECK(t.job(1).gpu_seconds == 25);
  CHECK(t.job(1).held_s == 15);
  CHECK(t.r.usage().back().jobs_waiting == 1);
  CHECK(t.r.progress() == 1);
}

TEST_CASE("a policy's row has the cluster's throughput, its utilization and the deadlines met") {
  simulation_options o;
  o.cluster = harness::small_cluster();
  o.policy = "fcfs";
  std::vector<arrival> workload;
  for (int i = 0; i < 3; ++i) {
    auto job = harness::small_job("job", 2000);
    if (i > 0) job.limits.deadline_s = i == 1 ? 1e6 : 1e9;
    workload.push_back({100.0 * i, job});
  }
  const auto made = simulate(o, workload);
  INFO((made ? std::string{} : made.error().text));
  REQUIRE(made);
  const auto& r = *made;
  CHECK(r.jobs == 3);
  CHECK(r.finished == 3);
  CHECK(r.with_deadline == 2);
  CHECK(r.met_deadline == 2);
  CHECK(r.dropped == 0);
  CHECK(r.moves == 0);
  CHECK(r.restarts_per_job == 0);
  double last_s = 0, gpu_seconds = 0, samples = 0, peak = 0;
  for (const auto& [id, j] : r.record->jobs()) {
    last_s = std::max(last_s, j.ended_s);
    gpu_seconds += j.gpu_seconds;
  }
  const auto& u = r.record->usage();
  for (std::size_t i = 0; i + 1 < u.size(); ++i)
    samples += u[i].samples_per_s * (u[i + 1].at_s - u[i].at_s);
  for (const auto& p : u) peak = std::max(peak, p.samples_per_s);
  const double makespan_s = last_s - r.record->jobs().begin()->second.submitted_s;
  CHECK(r.makespan_s == Approx(makespan_s));
  CHECK(r.cluster_throughput_avg == Approx(samples / makespan_s));
  CHECK(r.cluster_throughput_peak == peak);
  CHECK(r.gpu_utilization == Approx(gpu_seconds / (14 * makespan_s)));
  CHECK(r.gpu_utilization < 1);
}
