#include "harness/recorded.hpp"

#include <cmath>

#include "actors/worlds/virtual_cluster.hpp"
#include "harness/scratch.hpp"
#include "harness/small_cluster.hpp"
#include "messages/codec/codec.hpp"
#include "planners/schedule/schedule.hpp"
#include "planners/variety.hpp"
#include "studies/training_simulation.hpp"
#include "studies/workload_simulation.hpp"

// Whole clusters in virtual time, with jobs of all kinds, requests and faults: journals, nodes'
// work, replies to clients and trainings' reports.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::studies;
using troupe::test::recording;

namespace {

std::uint64_t hash_of_bytes(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const auto b : bytes) hash = (hash ^ std::to_integer<unsigned>(b)) * 0x100000001b3ULL;
  return hash;
}

/// The hash of a message's encoded header, which contains all of its fields.
std::uint64_t hash_of(const message& m) {
  return hash_of_bytes(encode(0, 0, m).header.bytes());
}

std::string content_of(const std::string& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

double spread(random_source& r, double low, double high) {
  return low * std::pow(high / low, r.uniform());
}

fault_plan some_faults(random_source& r, double until_s) {
  fault_plan f;
  f.until_s = until_s;
  if (r.chance(0.3)) return f;
  f.loss = 0.05 * r.uniform();
  f.duplication = 0.05 * r.uniform();
  f.reordering = 0.2 * r.uniform();
  f.reorder_delay_s = spread(r, 0.1, 3);
  f.node_crashes_per_hour = 4 * r.uniform();
  f.gateway_crashes_per_hour = 3 * r.uniform();
  f.controller_crashes_per_hour = 5 * r.uniform();
  f.mean_down_s = spread(r, 0.2, 20);
  f.torn_append = 0.01 * r.uniform();
  f.clock_drift = 0.02 * r.uniform();
  f.wall_skew_s = 100 * r.uniform();
  f.slow_nodes.push_back({"a-1", 1 + 3 * r.uniform(), 0, until_s});
  f.slow_links.push_back({"dc1", "dc2", 1 + 3 * r.uniform(), 100, until_s});
  const double from = until_s * r.uniform();
  if (r.chance(0.5)) f.partitions.push_back({{"dc2"}, {}, from, from + 60 * r.uniform()});
  if (r.chance(0.5)) f.partitions.push_back({{"c-0"}, {}, from, from + 20 * r.uniform()});
  return f;
}

job_spec some_training(random_source& r, const std::string& name) {
  const char* schedules[] = {"", "megatron", "varuna", "atlas-least-progress"};
  auto job = harness::small_job(name, 3 + r.below(60), 8);
  auto& t = job.train.emplace();
  t.checkpoint_every = 1 + std::uint32_t(r.below(8));
  t.schedule = variety::one_of(r, schedules);
  t.replan_every = std::uint32_t(r.below(10));
  t.replan_drift = 0.1;
  auto& p = job.pipeline;
  p.stages = std::uint32_t(r.below(4));
  p.data_parallel = std::uint32_t(r.below(3));
  p.microbatches = 1U << r.below(3);
  p.recompute = r.chance(0.5);
  if (r.chance(0.2)) p.stages_per_datacenter = 1;
  if (r.chance(0.2)) p.tensor_parallel = 2;
  return job;
}

job_spec some_job(random_source& r, const std::string& name) {
  if (r.chance(0.4)) return some_training(r, name);
  auto job = harness::small_job(name, 50 + r.below(600), 1U << r.below(4));
  if (r.chance(0.3)) job.model = harness::gpt2(24, 1024, 16);
  job.request.gpus = 1 + std::uint32_t(r.below(4));
  job.priority = r.chance(0.2) ? 1 : 0;
  if (r.chance(0.1)) job.limits.max_gpus = 2;
  if (r.chance(0.1)) job.limits.required_gpu_type = "A40";
  if (r.chance(0.1)) job.limits.deadline_s = 600;
  if (r.chance(0.1)) job.limits.max_restarts = 1;
  return job;
}

/// Users' requests during the run.
void some_requests(random_source& r, virtual_cluster& v, recording& all, double until_s) {
  for (int i = 0; i < 25; ++i) {
    const auto job = 1 + r.below(12);
    const auto request = r.next() | 1;
    message m = query_jobs{request, job};
    switch (r.below(6)) {
      case 0:
        m = explain_job{request, job};
        break;
      case 1:
        m = query_training{request, job, 0};
        break;
      case 2:
        m = query_jobs{request, 0};
        break;
      case 3:
        m = suspend_job{request, job, r.chance(0.5)};
        break;
      case 4: {
        move_job to;
        to.request = request, to.job = job;
        to.stages = std::uint32_t(r.below(4));
        to.data_parallel = std::uint32_t(r.below(3));
        if (r.chance(0.3)) to.gpu_type = "A40";
        if (r.chance(0.3)) to.grace_s = spread(r, 0.01, 10);
        m = to;
        break;
      }
      default:
        if (r.chance(0.3)) m = cancel_job{request, job};
    }
    v.world().at(until_s * r.uniform(), [&all, &v, m] {
      v.send(m, 60, [&all, &v](const answer& a) {
        all.add(v.world().now_s(), a.reply ? hash_of(a.reply->first) : 0);
      });
    });
  }
}

}  // namespace

TEST_CASE("virtual clusters with random jobs, requests and faults behave as recorded") {
  constexpr double until_s = 900;
  recording all{"actors", "clusters"};
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    all.begin(seed);
    random_source r{seed};
    const char* policies[] = {"frenzy", "troupe", "sia", "fcfs", "opportunistic"};
    virtual_cluster* cluster = nullptr;
    const auto now_s = [&] { return cluster != nullptr ? cluster->world().now_s() : 0; };
    virtual_cluster_options o;
    o.cluster = harness::small_cluster();
    o.policy = planners::make_policy(variety::one_of(r, policies));
    o.seed = seed;
    o.faults = some_faults(r, until_s);
    o.on_entry = [&](const journal_entry& e) {
      all.add(now_s(), e.index(), hash_of_bytes(encode(e)));
    };
    o.on_work = [&](node_index n, const work_order* w, const part_report* ended) {
      all.add(now_s(), n, w != nullptr ? w->lease : 0, ended != nullptr);
    };
    virtual_cluster v{o};
    cluster = &v;
    std::vector<arrival> workload;
    for (int i = 0; i < 10; ++i)
      workload.push_back({600 * r.uniform(), some_job(r, "job-" + std::to_string(i))});
    v.submit(workload);
    some_requests(r, v, all, until_s);
    v.world().run_until(3000);
    for (std::uint64_t job = 0; job <= 10; ++job)
      for (const message& m : {message{query_jobs{0, job}}, message{explain_job{0, job}},
                               message{query_training{0, job, 0}}}) {
        const auto a = v.ask(m);
        all.add(a.reply ? hash_of(a.reply->first) : 0);
      }
    const auto n = v.world().count();
    all.add(n.delivered, n.dropped, n.crashes, n.failures, n.events, n.handlers);
    cluster = nullptr;
  }
  all.check();
}

TEST_CASE("simulated trainings report the recorded stages, links and times") {
  recording all{"actors", "trainings"};
  const troupe::test::scratch room;
  random_source r{7};
  for (int i = 0; i < 150; ++i) {
    if (i % 3 == 0) all.begin(i);
    training_simulation_options o;
    o.cluster = std::make_shared<const cluster>(variety::some_cluster(r, 6));
    o.job = variety::some_training(r);
    o.job.iterations = 3 + r.below(12);
    o.job.train->device = "sim";
    o.job.train->replan_every = std::uint32_t(r.below(5));
    o.job.train->replan_drift = 0.05;
    o.job.pipeline.stages = 1 + std::uint32_t(r.below(4));
    if (r.chance(0.6)) o.job.pipeline.data_parallel = 1U << r.below(3);
    if (r.chance(0.4)) o.faults.slow_nodes.push_back({"n0", 3, 0, 50});
    if (r.chance(0.4)) o.faults.slow_links.push_back({"d0", "d1", 2, 0, 50});
    o.seed = r.next();
    o.limit_s = 1e5;
    if (r.chance(0.3)) o.job.train->timeline = room / "timeline.json";
    const auto made = simulate_training(o);
    all.add(i, made.has_value());
    if (made) all.add(hash_of(training_reply{0, made->report, {}, 0}), made->frames);
    if (!o.job.train->timeline.empty()) all.add(content_of(o.job.train->timeline));
  }
  all.check();
}

TEST_CASE("simulated workloads end with the recorded figures") {
  recording all{"actors", "workloads"};
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    all.begin(seed);
    for (const char* name : {"frenzy", "opportunistic", "fcfs", "sia", "troupe"}) {
      random_source r{seed};
      simulation_options o;
      o.cluster = harness::small_cluster();
      o.policy = name;
      o.seed = seed;
      if (r.chance(0.5)) o.faults = some_faults(r, 500);
      std::vector<arrival> workload;
      for (int i = 0; i < 12; ++i)
        workload.push_back({300 * r.uniform(), some_job(r, "job-" + std::to_string(i))});
      std::size_t notified = 0;
      o.progress = [&](std::size_t, std::size_t, double) { ++notified; };
      const auto made = simulate(o, workload);
      all.add(name, made.has_value(), notified);
      if (!made) continue;
      all.add(made->jobs, made->finished, made->failed, made->average_jct_s, made->p50_jct_s,
              made->p99_jct_s, made->average_queue_s, made->makespan_s, made->average_throughput,
              made->gpu_utilization, made->restarts_per_job, made->oom_failures);
      for (const auto& [id, j] : made->record->jobs())
        all.add(id, int(j.state), j.submitted_s, j.started_s, j.ended_s, j.held_s, j.gpu_seconds,
                j.attempts, j.out_of_memory, j.samples, j.nodes.size(), j.queued_s());
      for (const auto& u : made->record->usage()) all.add(u.at_s, u.gpus_held, u.jobs_waiting);
      all.add(made->record->ended(), made->record->progress());
    }
  }
  all.check();
  simulation_options none;
  none.cluster = harness::small_cluster();
  none.policy = "nobody's";
  CHECK_FALSE(simulate(none, {}));
}
