#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/elastic.hpp"
#include "messages/wire/work.hpp"

namespace troupe::actors {

/// Do rates differ by more than the noise of measuring them?
bool have_other_rates(const program_costs& now, const program_costs& before);

/// Adds an attempt that has ended at `at_s` to its job's record. `saved`: the iterations from which
/// the next attempt goes on; `gpu_type`: of the lease's GPUs, empty if there are several.
void add_attempt(elastic_record& record, const job_spec& spec, const lease_record& lease,
                 const std::string& gpu_type, double at_s, std::uint64_t saved);

/// The record of a job with its present attempt's rate as of its last report; null: the job is no
/// elastic program, or has never run.
std::shared_ptr<const elastic_record> record_by_now(const ledger& book, const job_record& j,
                                                    const progress_report* known);

/// The columns of `status`.
elastic_status elastic_status_of(const cluster& c, const ledger& book, const job_record& j,
                                 const progress_report* known);

/// The times that running attempts took to begin their first iteration. A program is not asked: its
/// reports and the grant are on the controller's clock. Lost with the controller: an attempt that
/// began before is not measured.
class start_times {
 public:
  /// A report of a running part. `before`: iterations of earlier attempts.
  void on_report(const lease_granted& lease, std::uint64_t before, const program_progress& p,
                 double now_s);
  std::optional<double> of(lease_id lease) const;
  void forget(lease_id lease) { leases_.erase(lease); }

 private:
  struct first_report {
    double at_s = 0;
    std::uint64_t iterations = 0;  // of this attempt, by then
    std::optional<double> start_s;
  };
  std::map<lease_id, first_report> leases_;
};

}  // namespace troupe::actors
