#pragma once

#include <set>
#include <tuple>
#include <utility>

#include "actors/control/leases/lease_manager.hpp"
#include "actors/control/ledger/recorder.hpp"

namespace troupe::actors {

/// Ends jobs that did not end by themselves in time: at their deadline, or when they have run for
/// longer than their limit. Both lists are ordered by time, so that a tick looks at what is due
/// alone; they may contain jobs and leases that have ended since, which are dropped then.
class time_limits {
 public:
  time_limits(recorder& records, lease_manager& leases) : records_{records}, leases_{leases} {}

  void remember_deadline(const job_record& j);
  void remember_limit(const lease_record& l);
  /// The cluster's own limit may be another one.
  void follow_cluster();

  void end_overdue();
  void end_long_runs();

 private:
  recorder& records_;
  lease_manager& leases_;
  std::set<std::pair<double, job_id>> deadlines_;          // the journal's time
  std::set<std::tuple<double, lease_id, job_id>> limits_;  // likewise
};

}  // namespace troupe::actors
