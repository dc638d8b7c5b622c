#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/leases/host_table.hpp"
#include "actors/control/leases/order_desk.hpp"
#include "actors/control/ledger/elastic_attempts.hpp"
#include "actors/control/ledger/ends.hpp"
#include "actors/control/ledger/recorder.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::actors {

/// The life of a lease, from the grant to the end of its last part:
///
///     grant -> running -- all parts ended --------------------------------> over
///                 |                                                          ^
///                 +-- revoke (a user, the policy, a limit, a failed part) --> revoked -- each part
///                                                        reported as gone, or its node lost --+
///
/// A part ends exactly once: by its node's report, or when its node's lease has expired. The first
/// part that fails revokes the lease, since the others cannot continue without it. What the end of
/// a lease means for its job follows from the ledger (settle).
class lease_manager {
 public:
  lease_manager(recorder& records, host_table& hosts, order_desk& orders,
                const controller_links& links)
      : records_{records}, hosts_{hosts}, orders_{orders}, links_{links}, began_s_{records.now()} {}

  /// Carries out a decision to start a job, or several as a union, or refuses it: the policy saw an
  /// older state.
  expected<void> grant(const planners::decision& d);
  /// The job is queued again; it gets time to save. `grace_s`: instead of the cluster's.
  /// `request`: of a client, which is remembered so that a repetition of it does nothing.
  void preempt(job_id id, end_word why, const std::string& detail,
               std::optional<double> grace_s = {}, std::optional<std::uint64_t> request = {});
  void revoke(lease_revoked e);
  void revoke(lease_id id, end_word why, const std::string& detail) {
    revoke(make_revocation(id, records_.wall(), why, detail));
  }
  /// The rest of a lease of which a part has ended.
  void revoke_rest(lease_id id);

  /// A member ends, and its union with it if they share their data: what is left of the others goes
  /// on by itself.
  void end_member(job_id id, end_word why, const std::string& detail);
  /// A union that cannot go on ends: it never got GPUs, or a member has left it whom it needs. Does
  /// nothing to another one, or to a job. After a restart: the controller died between two entries.
  void end_broken_union(job_id id);

  /// A node's report of this lease has been taken: records what its program has saved.
  void record_saved(lease_id id);
  /// A node's report, about a lease that the ledger has there.
  void on_part_report(node_index n, lease_id id, const node_report& r);
  /// A part of a lost lease had succeeded. If all its parts have, and no new attempt has begun, the
  /// job has succeeded.
  void on_late_success(node_index n, const part_report& p, std::uint64_t incarnation);
  /// The end of a part's program if this is its last report. Precondition: the ledger has its
  /// lease.
  std::optional<program_end> end_of_program(const part_report& p) const;
  /// The node of a part is gone, with all that it did since its last report.
  void lose_part(lease_id id, std::uint32_t part, const std::string& detail,
                 end_word why = end_word::lost_node);

  /// A part of a program has ended with status 0: the time of those that run on is limited, if the
  /// job says so.
  void begin_rank_wait(const lease_record& l);
  void end_rank_waits();

  /// Records the end of a job whose last lease has ended finally; of a union, those of its members.
  void settle(job_id id);

 private:
  expected<void> may_start(const planners::decision& d) const;
  expected<job_id> job_to_start(const planners::decision& d);
  std::optional<lease_id> held_by(std::optional<job_id> job) const;
  planners::idle_index idle_after(lease_id held) const;
  void end_done_members(const lease_record& l, std::uint64_t iterations);
  void end_decoder(const lease_record& l, std::uint32_t part, const part_report& r);
  void end_part(part_ended e);
  part_ended make_end(const lease_record& l, std::uint32_t part, const part_report& r,
                      bool node_is_unable) const;
  bool controller_was_away() const;
  void report_progress(const lease_record& l, const part_report& r);

  recorder& records_;
  host_table& hosts_;
  order_desk& orders_;
  const controller_links& links_;
  std::map<lease_id, double> saves_;  // when the next one may be recorded, by program
  // Programs of which a part has ended with status 0: when the others must have, on the monotonic
  // clock. After a restart it counts from there.
  std::map<lease_id, double> rank_waits_;
  start_times starts_;  // of elastic programs
  double began_s_;      // this controller, on the monotonic clock
  // For lost leases whose jobs are waiting: the parts that had succeeded, as far as their nodes
  // have reported.
  std::map<lease_id, std::vector<bool>> late_;
};

}  // namespace troupe::actors
