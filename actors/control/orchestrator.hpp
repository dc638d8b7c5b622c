#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/control/commit_batch.hpp"
#include "actors/control/job_progress.hpp"
#include "actors/control/ledger.hpp"
#include "actors/control/training_history.hpp"
#include "actors/protocol/protocol.hpp"
#include "planners/core/idle_index.hpp"
#include "runtime/host/host.hpp"

namespace troupe::actors {

/// When the journal is compacted, and how much history is kept.
struct journal_limits {
  std::uint64_t compact_after = 10'000;  // entries, beyond twice those of a snapshot
  std::size_t keep_ended = 10'000;       // ended jobs; older ones are forgotten
};

struct orchestrator_options {
  std::shared_ptr<const troupe::cluster> cluster;
  /// All nodes are on this machine: programs rendezvous at 127.0.0.1.
  bool local = false;
  /// Called with every entry once it is durable.
  std::function<void(const journal_entry&)> on_entry;
  /// Called with the ledger from time to time, for tests that compare it with the journal.
  std::function<void(const ledger&)> on_ledger;
  journal_limits limits;
};

/// The only owner of the resource ledger. Every change goes through here: it is checked, journaled,
/// and only then acted on. Entries are applied to the ledger immediately and batched; replies,
/// orders and events are held back until the batch is durable (commit_batch). Nodes receive their
/// complete desired state (node_orders) and report their complete actual state (node_report); the
/// difference determines what happens next.
class orchestrator_state {
 public:
  orchestrator_state() = default;
  void start(orchestrator_actor::pointer self, runtime::host h, orchestrator_options options);

  void hear(address from, const node_report& r);
  void hear(address from, const gateway_report& r);
  void hear(address from, const training_report& r);
  void tell(address from, const query_training& q);
  void commit(const proposal& p);
  void submit(address from, const runtime::caller& who, const submit_job& s);
  void cancel(address from, const runtime::caller& who, const cancel_job& c);
  void suspend(address from, const runtime::caller& who, const suspend_job& s);
  void move(address from, const runtime::caller& who, const move_job& m);
  void pass_on(address from, const runtime::caller& who, const read_log& r);
  void show(const scheduler_actor& s);
  void on_tick();
  /// At the end of a handler: commits what it has recorded soon, together with the results of all
  /// messages that are already waiting.
  void handled();
  void commit_batched();

 private:
  struct node_state {
    bool present = false;
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;  // of its last report or heartbeat
    std::uint64_t report = 0;    // the sequence of the last report; 0: it is to report in full
    std::uint64_t followed = 0;  // orders of this epoch that it had followed then
    std::uint64_t orders = 0;    // the last ones' sequence
    double heard_s = 0;
    std::set<lease_id> leases;  // with a part here that has not ended
  };
  struct gateway_state {
    bool present = false;
    std::uint64_t incarnation = 0, report = 0;
    double heard_s = 0;
  };

  void begin_epoch();
  void compact();
  bool record(const journal_entry& e);
  void publish(const std::shared_ptr<const journal_entry>& e);
  void reply(address to, message m);
  void tell_scheduler(presence p);
  void heard(node_state& node, std::uint64_t sequence);
  bool may_have_predecessor(const node_state& node, const node_report& r) const;
  void check_history(node_index n, const node_report& r) const;
  std::optional<lease_renewal> hear(const node_heartbeat& h);
  lease_renewal renewal_of(node_index n) const;
  expected<void> grant(const planners::decision& d, const proposal::expectation& expected);
  void revoke(lease_id id, lease_outcome why, const std::string& detail, double grace_s = 0);
  void preempt(const job_record& j, const std::string& detail, std::optional<double> grace_s = {});
  void end_grace(lease_id id);
  void end_graces();
  void end_part(lease_id id, std::uint32_t part, lease_outcome outcome, std::uint64_t iterations,
                double peak_bytes, const std::string& detail,
                std::optional<std::int32_t> exit_code = {});
  void report_progress(const lease_record& l, const part_report& r);
  void report_progress(job_id job);
  void lose_part(lease_id id, std::uint32_t part, const std::string& detail);
  void hear_part(node_index n, lease_id id, const node_report& r);
  void hear_late(node_index n, const part_report& p, std::uint64_t incarnation);
  void set_present(node_index n, bool present);
  void settle(job_id id);
  void remember_deadline(const job_record& j);
  void end_overdue();
  void refresh_idle(node_index n);
  void send_orders(node_index n);
  double now() const { return host_.clock->now_s(); }
  double wall() const { return host_.clock->wall_s(); }  // for the journal
  std::uint64_t wall_ms() const { return static_cast<std::uint64_t>(std::max(0.0, wall()) * 1000); }
  double silence_limit_s() const;

  orchestrator_actor::pointer self_ = nullptr;
  runtime::host host_;
  orchestrator_options options_;
  std::optional<ledger> ledger_;
  std::optional<planners::idle_index> idle_;
  std::vector<node_state> nodes_;
  std::vector<gateway_state> gateways_;
  // (lease, node): the first orders of this epoch that no longer contain the revoked lease.
  std::map<std::pair<lease_id, node_index>, std::uint64_t> left_out_;
  // Iterations that a part had completed by its node's last report in this epoch.
  std::map<std::pair<lease_id, node_index>, std::uint64_t> reached_;
  // Revoked leases that are still ordered so that their trainings can save, with their deadline on
  // the monotonic clock. Not known after a restart.
  std::map<lease_id, double> grace_until_s_;
  // For lost leases whose jobs are waiting: the parts that had succeeded, as far as their nodes
  // have reported.
  std::map<lease_id, std::vector<bool>> late_;
  std::set<node_index> to_order_;  // nodes whose orders changed in this handler
  training_history training_;
  std::set<std::pair<double, job_id>> deadlines_;  // wall clock; of jobs that may not have ended
  scheduler_actor scheduler_;
  commit_batch batch_;
  bool commit_asked_ = false;
};

orchestrator_actor::behavior_type orchestrator(
    orchestrator_actor::stateful_pointer<orchestrator_state> self, runtime::host h,
    orchestrator_options options);

}  // namespace troupe::actors
