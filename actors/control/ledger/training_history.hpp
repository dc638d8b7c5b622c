#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/find_in.hpp"
#include "messages/base/units.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Merges a newer report into `known`, with the iterations and events of both. Iterations in
/// `known` from the first newer one on are replaced: the job resumed from a checkpoint and repeated
/// them.
void append(training_report& known, const training_report& newer);

/// Training reports by job, in bounded memory: for each training the newest `exact_iterations`, at
/// most as many older ones (every n-th, with n doubling as they grow), and the newest `max_events`
/// events; for ended trainings only the last `kept_ended`.
class training_history {
 public:
  static constexpr std::size_t exact_iterations = 1000, max_events = 200, kept_ended = 100;
  static constexpr std::size_t max_tasks = 20'000;  // of a timeline; a longer one is not kept

  /// The part of a report that must be durable, if it has new iterations, a new checkpoint or a new
  /// event. Without the numbers of single stages: there are many, and the next report repeats them.
  std::optional<training_report> to_keep(const training_report& r) const;
  /// A duplicate or late report changes nothing.
  void add(const training_report& r);
  /// The job has ended: its history may be dropped once enough others have ended.
  void ended(job_id job);

  void forget(job_id job) { jobs_.erase(job); }
  /// Reports that recreate this history from an empty one, one per job, without the numbers of
  /// single stages.
  std::vector<training_report> snapshot() const;

  /// The newest report, with the iterations and events after an earlier position (0: all that are
  /// kept), and the newest position. Nothing: there is no report of this job, or it was dropped.
  std::optional<std::pair<training_report, std::uint64_t>> since(job_id job,
                                                                 std::uint64_t after) const;

  /// The newest report with the last few iterations and no events, for estimates of speed.
  std::optional<training_report> recent(job_id job) const;

  /// The iterations that earlier leases have reached, and their median time. 0: unknown, or this
  /// lease's trainer has already reported.
  std::uint64_t reached(job_id job, lease_id lease) const;
  double median_iteration_s(job_id job, lease_id lease) const;

  /// Iterations in the newest complete checkpoint that a lease's trainer has reported.
  std::uint64_t saved(job_id job, lease_id lease) const;

 private:
  // Positions number everything ever reported of a job, so that a client can continue from one.
  struct numbered_iteration {
    std::uint64_t position = 0;
    iteration_record what;
  };
  struct history {
    training_report newest;  // without iterations and events
    std::uint64_t position = 0;
    std::vector<numbered_iteration> older;  // every `stride`-th iteration, and the first one
    std::deque<numbered_iteration> exact;
    std::uint64_t stride = 1;
    std::deque<std::pair<std::uint64_t, std::string>> events;

    void forget_from(std::uint64_t iteration);
    void add(const iteration_record& i);
    bool empty() const { return older.empty() && exact.empty(); }
  };
  const history* of(job_id job) const { return find_in(jobs_, job); }
  /// The history of earlier leases, or null.
  const history* before(job_id job, lease_id lease) const;

  std::map<job_id, history> jobs_;
  std::deque<job_id> ended_;
};

}  // namespace troupe::actors
