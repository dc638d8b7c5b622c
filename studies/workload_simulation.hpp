#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/faults.hpp"
#include "messages/domain/job.hpp"
#include "messages/wire/journal.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::studies {

/// Outcome of one job of a simulated workload. Times are virtual, since the run's begin.
struct job_outcome {
  job_id job = 0;
  std::string name;
  job_state state = job_state::waiting;
  double submitted_s = 0, started_s = 0, ended_s = 0;
  double held_s = 0;  // with GPUs allocated
  double gpu_seconds = 0;
  std::uint32_t attempts = 0, out_of_memory = 0;
  std::vector<std::string> merged_with;  // in its last attempt: the names of the others
  // Attempts that the policy ended. `moves`: had GPUs again at once; `scale_ups`, `scale_downs`:
  // with more, with fewer; `suspended`: waited longer than a restart takes.
  std::uint32_t moves = 0, scale_ups = 0, scale_downs = 0, suspended = 0;
  std::uint64_t lost_iterations = 0;
  std::optional<double> deadline_s;  // after submission
  double samples = 0;
  plan how;  // of the last attempt
  std::vector<node_index> nodes;

  double completion_s() const { return ended_s - submitted_s; }
  double queued_s() const { return completion_s() - held_s; }
};

/// The cluster at one point in time.
struct usage_point {
  double at_s = 0;
  std::uint32_t gpus_held = 0;
  std::uint32_t jobs_waiting = 0;
  double samples_per_s = 0;  // of all jobs that run
};

/// The history of a simulated workload for tables and pictures, from the entries of the
/// controller's journal in their order.
class workload_record {
 public:
  void take(const journal_entry& e);

  const std::map<job_id, job_outcome>& jobs() const { return jobs_; }
  const std::vector<usage_point>& usage() const { return usage_; }
  std::size_t ended() const { return ended_; }
  /// Increases with every arrival, every attempt that did iterations, and every end.
  std::uint64_t progress() const { return progress_; }
  /// Unions that ran, starts on GPUs that another job still had, and the seconds that all starts
  /// took before their first iterations.
  std::size_t unions() const { return unions_run_; }
  std::size_t switches() const { return switches_; }
  double start_s_total() const { return start_s_total_; }

 private:
  // By kind of entry; others are ignored: hosts, progress of trainings, and compaction, which does
  // not occur, since a run begins with an empty journal.
  void on(const job_accepted& e);
  void on(const lease_granted& e);
  void on(const lease_revoked& e);
  void on(const part_ended& e);
  void on(const member_ended& e);
  void on(const job_ended& e);
  std::vector<job_id> jobs_of(job_id granted) const;
  void begin(job_outcome& j, const lease_granted& e);
  int take_gpus(const lease_granted& e);
  int release_gpus(const lease_part& part, lease_id from, double at_s);
  /// Adds these changes to the usage.
  void note(double at_s, int gpus, int waiting, double samples_per_s = 0);
  void note_move(job_outcome& j, const lease_granted& e);

  struct held {
    lease_granted granted;
    std::size_t parts_left = 0;
    double since_s = 0;  // when it got its GPUs
    bool out_of_memory = false, preempted = false;
    double samples_per_s = 0;
    std::uint64_t iterations = 0;   // that are kept
    std::set<std::size_t> ended{};  // parts
  };
  double share_of(job_id id, const std::vector<job_id>& all) const;
  void end_attempt(job_outcome& j, const held& l, const part_ended& e);
  struct preemption {
    double at_s = 0;
    std::uint32_t gpus = 0;
  };
  std::map<job_id, job_outcome> jobs_;
  std::map<lease_id, held> leases_;
  std::map<job_id, preemption> preempted_;  // until they have GPUs again
  // Jobs that have not ended alone: the record has all of a trace, and each start looks here.
  std::set<job_id> waits_;
  std::map<job_id, std::uint32_t> batches_;
  std::map<job_id, std::vector<job_id>> unions_;                      // members that have not left
  std::map<std::pair<node_index, std::uint16_t>, lease_id> passing_;  // GPUs that have a successor
  std::size_t unions_run_ = 0, switches_ = 0;
  double start_s_total_ = 0;
  std::vector<usage_point> usage_;
  std::size_t ended_ = 0;
  std::uint64_t progress_ = 0;
};

/// One policy's row of the table. Times in s; throughput in samples/s, the mean over jobs of their
/// rates while they held GPUs; a cluster's is that of all jobs that run at a time, from the first
/// submission to the last end; utilization is the fraction of GPU time held until the last job
/// ended.
struct policy_result {
  std::string policy;
  std::size_t jobs = 0, finished = 0, failed = 0;
  double average_jct_s = 0, p50_jct_s = 0, p99_jct_s = 0;
  double average_queue_s = 0, makespan_s = 0, average_throughput = 0, gpu_utilization = 0;
  double restarts_per_job = 0;
  std::size_t oom_failures = 0;
  double cluster_throughput_avg = 0, cluster_throughput_peak = 0;
  std::size_t with_deadline = 0, met_deadline = 0;
  std::size_t dropped = 0;  // failed without ever having GPUs
  std::size_t moves = 0, scale_ups = 0, scale_downs = 0, suspended = 0;
  std::uint64_t lost_iterations = 0;
  std::size_t merges = 0, merged_jobs = 0, switches = 0;  // unions, their members, successors
  double switch_s_total = 0;  // that starts took before their first iterations
  double decision_mean_us = 0, decision_p99_us = 0, decision_max_us = 0;
  std::uint64_t fingerprint = 0;
  double wall_s = 0;
  std::shared_ptr<const workload_record> record;
};

/// A workload's world. The cluster's heartbeats are switched off unless there are faults.
struct simulation_options {
  std::shared_ptr<const troupe::cluster> cluster;
  std::string policy;
  std::uint64_t seed = 1;
  fault_plan faults;
  /// Called from time to time: ended jobs, all jobs, virtual time.
  std::function<void(std::size_t, std::size_t, double)> progress;
  /// Called for each entry of the controller's journal.
  std::function<void(const journal_entry&)> on_entry{};
};

/// Runs a workload through all actors in virtual time until every job has ended. Fails for an
/// unknown policy, and for a run that does not terminate: a job has not ended after ten years, or
/// the policy decides 10,000 times in a row without progress of any job.
expected<policy_result> simulate(const simulation_options& options,
                                 const std::vector<arrival>& workload);
/// Under the caller's own policy; options.policy is ignored.
expected<policy_result> simulate(const simulation_options& options,
                                 const std::vector<arrival>& workload,
                                 std::shared_ptr<const planners::policy> policy);

}  // namespace troupe::studies
