#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/control/cluster_state.hpp"
#include "actors/control/commit_batch.hpp"
#include "actors/control/interfaces.hpp"
#include "actors/control/job_progress.hpp"
#include "actors/control/ledger.hpp"
#include "actors/control/roster.hpp"
#include "actors/control/served_jobs.hpp"
#include "actors/control/training_history.hpp"
#include "planners/cluster/idle_index.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// When the journal is compacted, and how much history is kept.
struct journal_limits {
  std::uint64_t compact_after = 10'000;  // entries more than twice those of a snapshot
  std::size_t keep_ended = 10'000;       // ended jobs; older ones are forgotten
};

struct orchestrator_options {
  shared_cluster cluster;
  /// All nodes are on this machine: programs rendezvous at 127.0.0.1.
  bool local = false;
  journal_limits limits;
  /// Which start of the machine its monotonic clock counts from; 0: unknown.
  std::uint64_t boot = 0;
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

  void on_node_report(address from, const node_report& r);
  void on_gateway_report(address from, const gateway_report& r);
  void on_training_report(address from, const training_report& r);
  void on_query_training(address from, const query_training& q);
  void on_proposal(const proposal& p);
  void on_submit_job(address from, const runtime::caller& who, const submit_job& s);
  void on_cancel_job(address from, const runtime::caller& who, const cancel_job& c);
  void on_suspend_job(address from, const runtime::caller& who, const suspend_job& s);
  void on_requeue_job(address from, const runtime::caller& who, const requeue_job& r);
  void on_reconfigure(address from, const runtime::caller& who, const reconfigure& r);
  void on_drain_nodes(address from, const runtime::caller& who, const drain_nodes& d);
  void on_move_job(address from, const runtime::caller& who, const move_job& m);
  void on_read_log(address from, const runtime::caller& who, const read_log& r);
  void on_begin_scheduling(const begin_scheduling& m);
  void on_begin_status(const begin_status& m);
  void on_job_planned(const job_planned& m);
  void on_subscribe(const subscribe& m);
  void on_tick();
  /// At the end of a handler: commits what it has recorded soon, together with the results of all
  /// messages that are already waiting.
  void commit_soon();
  void on_commit_now();

 private:
  struct node_state {
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;  // of its last report or heartbeat
    std::uint64_t report = 0;    // sequence of the last report; 0: a full report is needed
    std::uint64_t followed = 0;  // orders of this epoch that it had followed by then
    std::uint64_t orders = 0;    // sequence of the last orders
    double last_report_s = 0;
    std::set<lease_id> leases;         // with a part here that has not ended
    std::vector<std::uint16_t> ports;  // free ones, by its last report
  };
  struct gateway_state {
    std::uint64_t incarnation = 0, report = 0;
    double last_report_s = 0;
    gateway_traffic traffic;
  };

  void begin_time();
  void begin_epoch();
  void choose_cluster(const cluster& file);
  void follow_cluster();
  bool record_cluster(merged_cluster next, std::uint64_t file);
  bool change_cluster(merged_cluster next, std::uint64_t file);
  void follow_awaited_file();
  void settle_lease_length();
  void stop_unwanted();
  bool is_busy(node_index n) const;
  std::vector<job_id> jobs_on(node_index n) const;
  void compact();
  bool record(const journal_entry& e);
  void state_has_changed();
  void publish();
  std::shared_ptr<const cluster_state> state();
  std::vector<job_id> jobs_of(const journal_entry& e) const;
  void reply(address to, message m);
  void renew_contact(node_state& node, std::uint64_t sequence);
  bool may_have_predecessor(const node_state& node, const node_report& r) const;
  void check_history(node_index n, const node_report& r) const;
  std::optional<lease_renewal> on_heartbeat(const node_heartbeat& h);
  lease_renewal renewal_of(node_index n) const;
  expected<void> grant(const planners::decision& d);
  void revoke(lease_revoked e);
  void revoke(lease_id id, lease_outcome why, const std::string& detail) {
    revoke({id, wall(), why, detail});
  }
  void preempt(job_id id, const std::string& detail, std::optional<double> grace_s = {},
               std::optional<std::uint64_t> request = {});
  void end_grace(lease_id id);
  void end_graces();
  void end_decoder(const lease_record& l, std::uint32_t part, const part_report& r);
  void end_part(part_ended e);
  void begin_rank_wait(const lease_record& l);
  void end_rank_waits();
  void report_progress(const lease_record& l, const part_report& r);
  void report_progress(job_id job);
  void send_progress(const job_progress& p);
  void lose_part(lease_id id, std::uint32_t part, const std::string& detail);
  void on_part_report(node_index n, lease_id id, const node_report& r);
  void on_late_success(node_index n, const part_report& p, std::uint64_t incarnation);
  void set_present(node_index n, bool present);
  void set_gateway_present(std::uint32_t datacenter, bool present);
  void report_traffic(std::uint32_t datacenter, const gateway_traffic& now);
  void settle(job_id id);
  void answer_held_submissions();
  void remember_deadline(const job_record& j);
  void end_overdue();
  void remember_limit(const lease_record& l);
  void end_long_runs();
  std::optional<std::uint16_t> free_port(node_index n, lease_id id) const;
  void refresh_idle(node_index n);
  void send_orders(node_index n);
  void state_serving();
  double now() const { return host_.clock->now_s(); }
  double wall() const { return now() + journal_ahead_s_; }  // the journal's time
  std::uint64_t wall_ms() const;                            // of the wall clock
  double silence_limit_s() const;

  orchestrator_actor::pointer self_ = nullptr;
  runtime::host host_;
  orchestrator_options options_;
  // As in the ledger; options_.cluster follows once it is durable.
  std::shared_ptr<const troupe::cluster> cluster_;
  std::optional<double> longest_lease_until_s_;  // nodes may have an earlier, longer lease
  std::optional<cluster> awaited_file_;          // of the start; it changes nodes that are busy
  std::optional<ledger> ledger_;
  std::optional<planners::idle_index> idle_;
  std::vector<node_state> nodes_;
  std::vector<gateway_state> gateways_;
  // (lease, node): the first orders of this epoch that no longer contain the revoked lease.
  std::map<std::pair<lease_id, node_index>, std::uint64_t> left_out_;
  // What a part had done by its node's last report in this epoch.
  struct part_progress {
    std::uint64_t iterations = 0;
    std::optional<program_end> program;
  };
  std::map<std::pair<lease_id, node_index>, part_progress> reached_;
  // Revoked leases that are still ordered so that their trainings can save, with their deadline on
  // the monotonic clock. Not known after a restart.
  std::map<lease_id, double> grace_until_s_;
  // Programs of which a part has ended with status 0: when the others must have, on the monotonic
  // clock. After a restart it counts from there.
  std::map<lease_id, double> rank_waits_;
  // For lost leases whose jobs are waiting: the parts that had succeeded, as far as their nodes
  // have reported.
  std::map<lease_id, std::vector<bool>> late_;
  std::set<node_index> to_order_;  // nodes whose orders changed in this handler
  training_history training_;
  double journal_ahead_s_ = 0;                     // of the monotonic clock
  std::set<std::pair<double, job_id>> deadlines_;  // the journal's time; may include ended jobs
  std::set<std::pair<double, lease_id>> limits_;   // likewise, of time limits
  served_jobs served_;
  std::uint64_t serving_statements_ = 0;
  bool serving_changed_ = false;  // since the last statement
  /// An accepted job's submitter, who is answered when it is known whether the job can ever run.
  struct held_submission {
    address to = 0;
    std::uint64_t request = 0;
    double until_s = 0;  // monotonic; then it is answered all the same
  };
  std::map<job_id, held_submission> held_;
  scheduler_actor scheduler_;  // null, as the next one: it has not begun
  status_actor status_;
  std::vector<state_subscriber> subscribers_;
  std::vector<job_id> changed_jobs_;  // since the state was published
  bool publish_asked_ = false;
  std::shared_ptr<const planners::idle_index> published_idle_;  // null: changed since
  shared_value<std::vector<bool>> nodes_present_, gateways_present_;
  commit_batch batch_;
  bool commit_asked_ = false;
};

orchestrator_actor::behavior_type orchestrator(
    orchestrator_actor::stateful_pointer<orchestrator_state> self, runtime::host h,
    orchestrator_options options);

}  // namespace troupe::actors
