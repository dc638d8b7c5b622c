#include "studies/workload_simulation.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/worlds/virtual_cluster.hpp"
#include "actors/worlds/watched_policy.hpp"
#include "messages/base/folds.hpp"
#include "messages/base/statistics.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::studies {

// -- job records

void workload_record::take(const journal_entry& e) {
  std::visit(
      [this](const auto& entry) {
        if constexpr (requires { on(entry); }) on(entry);
      },
      e);
}

// The usage is a step function of time: each change adds a point, and changes at one moment share
// one. Where no GPU is held the rate is exactly 0: sums of rates that came and went would leave
// rounding errors.
void workload_record::note(double at_s, int gpus, int waiting, double samples_per_s) {
  usage_point p = usage_.empty() ? usage_point{} : usage_.back();
  p.at_s = at_s;
  p.gpus_held = static_cast<std::uint32_t>(static_cast<int>(p.gpus_held) + gpus);
  p.jobs_waiting = static_cast<std::uint32_t>(static_cast<int>(p.jobs_waiting) + waiting);
  p.samples_per_s = p.gpus_held == 0 ? 0 : p.samples_per_s + samples_per_s;
  if (!usage_.empty() && usage_.back().at_s == at_s)
    usage_.back() = p;
  else
    usage_.push_back(p);
}

// A union is not a job of its own: what it holds is its members'.
void workload_record::on(const job_accepted& e) {
  ++progress_;
  if (e.members) {
    unions_[e.job] = e.members->jobs;
    batches_[e.job] = e.spec.global_batch;
    return;
  }
  auto& j = jobs_[e.job];
  j.job = e.job;
  j.name = e.spec.name;
  j.submitted_s = e.at_s;
  j.samples = static_cast<double>(e.spec.global_batch) * static_cast<double>(e.spec.iterations);
  j.deadline_s = e.spec.limits.deadline_s;
  batches_[e.job] = e.spec.global_batch;
  waits_.insert(e.job);
  note(e.at_s, 0, 1);
}

std::vector<job_id> workload_record::jobs_of(job_id granted) const {
  const auto at = unions_.find(granted);
  return at == unions_.end() ? std::vector{granted} : at->second;
}

void workload_record::on(const lease_granted& e) {
  const auto jobs = jobs_of(e.job);
  for (const auto id : jobs) begin(jobs_[id], e);
  unions_run_ += unions_.contains(e.job);
  switches_ += e.after.has_value();
  start_s_total_ += e.start_s;
  auto& l = leases_[e.lease] = {e, e.parts.size(), e.at_s};
  if (e.iteration_s > 0 && !e.out_of_memory) l.samples_per_s = batches_[e.job] / e.iteration_s;
  note(e.at_s, take_gpus(e), -static_cast<int>(jobs.size()), l.samples_per_s);
}

void workload_record::begin(job_outcome& j, const lease_granted& e) {
  if (j.attempts++ == 0) j.started_s = e.at_s;
  j.how = e.how;
  j.nodes.clear();
  for (const auto& part : e.parts) j.nodes.push_back(part.node);
  j.merged_with.clear();
  for (const auto id : jobs_of(e.job))
    if (id != j.job) j.merged_with.push_back(jobs_.at(id).name);
  waits_.erase(j.job);
  note_move(j, e);
}

// The GPUs that were free. The others pass on from the lease before, whose parts have not ended.
int workload_record::take_gpus(const lease_granted& e) {
  int taken = static_cast<int>(e.how.gpus());
  const auto before = e.after ? leases_.find(*e.after) : leases_.end();
  if (before == leases_.end()) return taken;
  const auto& former = before->second;
  for (const auto& part : e.parts)
    for (std::size_t i = 0; i < former.granted.parts.size(); ++i) {
      const auto& old = former.granted.parts[i];
      if (old.node != part.node || former.ended.contains(i)) continue;
      for (const auto gpu : part.devices)
        if (std::ranges::find(old.devices, gpu) != old.devices.end()) {
          passing_[{part.node, gpu}] = e.lease;
          --taken;
        }
    }
  return taken;
}

// The GPUs that are free from now on.
int workload_record::release_gpus(const lease_part& part, lease_id from, double at_s) {
  int freed = 0;
  for (const auto gpu : part.devices) {
    const auto next = passing_.extract({part.node, gpu});
    freed += next.empty();
    if (const auto l = next ? leases_.find(next.mapped()) : leases_.end();
        l != leases_.end() && next.mapped() != from)
      l->second.since_s = at_s;
  }
  return freed;
}

// A job that the policy stopped has GPUs again. It was suspended if it waited longer than a restart
// takes (at least a second), otherwise moved: a policy that resizes a job stops and starts it at
// once.
void workload_record::note_move(job_outcome& j, const lease_granted& e) {
  const auto before = preempted_.extract(j.job);
  if (!before) return;
  const auto& was = before.mapped();
  if (e.at_s - was.at_s > std::max(1.0, e.start_s))
    ++j.suspended;
  else
    ++j.moves;
  j.scale_ups += e.how.gpus() > was.gpus ? 1 : 0;
  j.scale_downs += e.how.gpus() < was.gpus ? 1 : 0;
}

void workload_record::on(const lease_revoked& e) {
  if (auto l = leases_.find(e.lease); l != leases_.end())
    l->second.preempted = e.why == lease_outcome::preempted;
}

// GPUs are counted part by part, since nodes end their parts at different times; the attempt itself
// ends with its last part.
void workload_record::on(const part_ended& e) {
  progress_ += e.iterations > 0 ? 1 : 0;
  auto& l = leases_.at(e.lease);
  const auto jobs = jobs_of(l.granted.job);
  const auto gpus = l.granted.parts[e.part].devices.size();
  for (const auto id : jobs)
    jobs_[id].gpu_seconds += share_of(id, jobs) * static_cast<double>(gpus) * (e.at_s - l.since_s);
  l.out_of_memory |= e.outcome == lease_outcome::out_of_memory;
  l.ended.insert(e.part);
  note(e.at_s, -release_gpus(l.granted.parts[e.part], e.lease, e.at_s), 0);
  l.iterations = std::max(l.iterations, e.iterations);
  if (--l.parts_left > 0) return;
  note(e.at_s, 0, 0, -l.samples_per_s);
  for (const auto id : jobs) end_attempt(jobs_[id], l, e);
  leases_.erase(e.lease);
}

/// By samples: the share of a union's GPU time that is a member's.
double workload_record::share_of(job_id id, const std::vector<job_id>& all) const {
  if (all.size() == 1) return 1;
  const double samples = sum_of(all, [&](job_id j) { return jobs_.at(j).samples; });
  return jobs_.at(id).samples / samples;
}

void workload_record::end_attempt(job_outcome& j, const held& l, const part_ended& e) {
  j.held_s += e.at_s - l.since_s;
  if (l.preempted && e.outcome != lease_outcome::succeeded) {
    preempted_[j.job] = {e.at_s, l.granted.how.gpus()};
    // Lost: iterations that fit into the time after the start, less those that the job kept.
    const double worked_s = e.at_s - l.since_s - l.granted.start_s;
    const auto done = static_cast<std::uint64_t>(
        l.granted.iteration_s > 0 ? std::max(0.0, worked_s / l.granted.iteration_s) : 0);
    j.lost_iterations += done - std::min(done, l.iterations);
  }
  j.out_of_memory += l.out_of_memory ? 1 : 0;
  // Either the job's end follows at once, or it is queued again.
  waits_.insert(j.job);
  note(e.at_s, 0, 1);
}

void workload_record::on(const member_ended& e) {
  for (auto& [id, members] : unions_) std::erase(members, e.job);
  waits_.insert(e.job);
  note(e.at_s, 0, 1);
}

void workload_record::on(const job_ended& e) {
  ++progress_;
  batches_.erase(e.job);
  if (unions_.erase(e.job) > 0) return;
  auto& j = jobs_[e.job];
  j.state = e.final_state;
  j.ended_s = e.at_s;
  ++ended_;
  if (waits_.erase(e.job) > 0) note(e.at_s, 0, -1);
}

// -- summary table

namespace {

/// Samples per second of all jobs together, from the first submission to the last end.
void summarise_throughput(policy_result& r, const workload_record& record) {
  double samples = 0;
  const auto& usage = record.usage();
  for (std::size_t i = 0; i < usage.size(); ++i) {
    r.cluster_throughput_peak = std::max(r.cluster_throughput_peak, usage[i].samples_per_s);
    if (i + 1 < usage.size())
      samples += usage[i].samples_per_s * (usage[i + 1].at_s - usage[i].at_s);
  }
  if (r.makespan_s > 0) r.cluster_throughput_avg = samples / r.makespan_s;
  r.merges = record.unions();
  r.switches = record.switches();
  r.switch_s_total = record.start_s_total();
  for (const auto& [id, j] : record.jobs()) {
    r.moves += j.moves;
    r.scale_ups += j.scale_ups;
    r.scale_downs += j.scale_downs;
    r.suspended += j.suspended;
    r.lost_iterations += j.lost_iterations;
    r.merged_jobs += !j.merged_with.empty();
    r.dropped += j.state == job_state::failed && j.attempts == 0 ? 1 : 0;
    if (!j.deadline_s) continue;
    ++r.with_deadline;
    r.met_deadline += j.state == job_state::finished && j.completion_s() <= *j.deadline_s ? 1 : 0;
  }
}

void summarise(policy_result& r, const workload_record& record, const troupe::cluster& c) {
  std::vector<double> jct, queue, throughput;
  double gpu_seconds = 0, restarts = 0;
  // Ids are given in the order of submission: the first job's time begins the makespan.
  double first_s = record.jobs().empty() ? 0 : record.jobs().begin()->second.submitted_s;
  for (const auto& [id, j] : record.jobs()) {
    r.jobs += 1;
    r.finished += j.state == job_state::finished ? 1 : 0;
    r.failed += j.state == job_state::failed ? 1 : 0;
    r.oom_failures += j.out_of_memory;
    restarts += j.attempts > 1 ? j.attempts - 1 : 0;
    gpu_seconds += j.gpu_seconds;
    r.makespan_s = std::max(r.makespan_s, j.ended_s - first_s);
    if (j.state != job_state::finished) continue;
    jct.push_back(j.completion_s());
    queue.push_back(j.queued_s());
    if (j.held_s > 0) throughput.push_back(j.samples / j.held_s);
  }
  std::uint32_t gpus = 0;
  for (const auto& n : c.nodes) gpus += n.gpus;
  r.average_jct_s = statistics::mean(jct);
  r.p50_jct_s = statistics::quantile(jct, 0.5);
  r.p99_jct_s = statistics::quantile(jct, 0.99);
  r.average_queue_s = statistics::mean(queue);
  r.average_throughput = statistics::mean(throughput);
  r.gpu_utilization = r.makespan_s > 0 ? gpu_seconds / (gpus * r.makespan_s) : 0;
  summarise_throughput(r, record);
  r.restarts_per_job = r.jobs > 0 ? restarts / static_cast<double>(r.jobs) : 0;
}

// Ten years. A workload that needs longer would not end under this policy.
constexpr double run_limit_s = 10 * 365 * 86400.0;

/// Without faults no heartbeat is due before the run's limit, so that the simulation's cost depends
/// on the number of jobs, not on nodes times virtual time. Nodes still report changes.
troupe::cluster without_heartbeats(troupe::cluster c) {
  c.settings.heartbeat_s = std::max(c.settings.heartbeat_s, 2 * run_limit_s);
  c.settings.lease_s = std::max(c.settings.lease_s, 2 * c.settings.heartbeat_s);
  return c;
}

/// Counts decisions since any job made progress. A policy that moves a job at every decision could
/// do so without end, and virtual time would hardly pass.
class idle_decisions {
 public:
  static constexpr std::size_t max_decisions = 10'000;

  void note(std::size_t made, std::uint64_t progress) {
    if (std::exchange(progress_, progress) != progress) count_ = 0;
    count_ += made > 0 ? 1 : 0;
  }
  bool too_many() const { return count_ >= max_decisions; }

 private:
  std::uint64_t progress_ = 0;
  std::size_t count_ = 0;
};

/// Slow nodes alone need no heartbeat: no host is lost.
bool has_faults(const fault_plan& f) {
  auto without = f;
  without.name.clear();
  without.slow_nodes.clear();
  return without != fault_plan{};
}

}  // namespace

expected<policy_result> simulate(const simulation_options& options,
                                 const std::vector<arrival>& workload) {
  std::shared_ptr<const planners::policy> policy = planners::make_policy(options.policy);
  if (!policy) return refuse(reason::kind::unknown, fmt::format("no policy '{}'", options.policy));
  return simulate(options, workload, std::move(policy));
}

expected<policy_result> simulate(const simulation_options& options,
                                 const std::vector<arrival>& workload,
                                 std::shared_ptr<const planners::policy> policy) {
  const auto watched = actors::watched_policy::watch(policy);
  if (!watched) return refuse(watched.error());
  const auto& failure = (*watched)->failure();
  const runtime::stopwatch watch;
  const auto jobs = workload.size();
  auto record = std::make_shared<workload_record>();
  idle_decisions idle;
  std::vector<double> decisions_us;
  actors::virtual_cluster_options v;
  v.cluster = has_faults(options.faults)
                  ? options.cluster
                  : std::make_shared<const troupe::cluster>(without_heartbeats(*options.cluster));
  v.policy = *watched;
  v.seed = options.seed;
  v.faults = options.faults;
  // Nobody asks about ended jobs: the record has what is shown of them.
  v.limits.keep_ended = 100;
  v.explains = false;
  v.on_decision = [&](double us, std::size_t made) {
    decisions_us.push_back(us);
    idle.note(made, record->progress());
  };
  v.on_entry = [record, &options](const journal_entry& e) {
    record->take(e);
    if (options.on_entry) options.on_entry(e);
  };
  actors::virtual_cluster cluster{std::move(v)};
  cluster.submit_from(workload);
  // In steps, so that the caller can show progress; their length changes no event.
  constexpr double step_s = 6 * 3600;
  auto all_ended = [&] {
    return record->ended() >= jobs || cluster.refusal() || failure || idle.too_many();
  };
  while (!all_ended()) {
    const double until_s = cluster.world().now_s() + step_s;
    if (until_s > run_limit_s)
      return refuse(reason::kind::invalid,
                    fmt::format("{} of {} jobs did not end within ten years of virtual time",
                                jobs - record->ended(), jobs));
    cluster.world().run_until(all_ended, until_s);
    if (options.progress) options.progress(record->ended(), jobs, cluster.world().now_s());
  }
  // The first cause: a policy that failed decides nothing any more, and jobs would wait.
  if (failure) return refuse(*failure);
  if (cluster.refusal()) return refuse(*cluster.refusal());
  if (idle.too_many())
    return refuse(reason::kind::invalid,
                  fmt::format("policy {} started, stopped or moved jobs {} times in a row without "
                              "completing an iteration: it would never end",
                              policy->name(), idle_decisions::max_decisions));
  policy_result r;
  r.policy = policy->name();
  summarise(r, *record, *options.cluster);
  r.decision_mean_us = statistics::mean(decisions_us);
  r.decision_p99_us = statistics::quantile(decisions_us, 0.99);
  r.decision_max_us = statistics::quantile(decisions_us, 1);
  r.fingerprint = cluster.world().fingerprint();
  r.wall_s = watch.s();
  r.record = std::move(record);
  return r;
}

}  // namespace troupe::studies
