#pragma once

#include <cstdint>
#include <map>

#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/leases/host_table.hpp"
#include "actors/control/leases/lease_manager.hpp"
#include "actors/control/leases/owner_usage.hpp"
#include "actors/control/leases/served_jobs.hpp"
#include "actors/control/ledger/recorder.hpp"

namespace troupe::actors {

/// Clients' requests that change jobs, and those for logs and curves. A client repeats its request
/// until it is answered, so each of them may arrive many times, and long after it was carried out:
/// the journal remembers request numbers where a repetition would do something else.
class client_desk {
 public:
  client_desk(recorder& records, host_table& hosts, lease_manager& leases,
              const served_jobs& served, const controller_links& links)
      : records_{records}, hosts_{hosts}, leases_{leases}, served_{served}, links_{links} {}

  void on(const inbound<submit_job>& m);
  void on(const inbound<cancel_job>& m);
  void on(const inbound<suspend_job>& m);
  void on(const inbound<requeue_job>& m);
  void on(const inbound<move_job>& m);
  void on(const inbound<read_log>& m);
  void on(const inbound<query_training>& m);
  /// The scheduler knows whether an accepted job can ever run.
  void on_job_planned(const job_planned& m);
  void answer_held_submissions();

 private:
  /// The client's job, on which it may act; `what`: "cancel it", ...
  expected<const job_record*> job_for(const runtime::caller& who, job_id id,
                                      const char* what) const;

  /// An accepted job's submitter, who is answered when it is known whether the job can ever run.
  struct held_submission {
    address to = 0;
    std::uint64_t request = 0;
    double until_s = 0;  // monotonic; then it is answered all the same
  };

  recorder& records_;
  host_table& hosts_;
  lease_manager& leases_;
  const served_jobs& served_;
  const controller_links& links_;
  std::map<job_id, held_submission> held_;
  owner_usage usage_;
};

}  // namespace troupe::actors
