#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/control/ledger.hpp"
#include "actors/control/pending_starts.hpp"
#include "actors/control/placement_notes.hpp"
#include "actors/protocol/protocol.hpp"
#include "messages/shared_reply.hpp"
#include "planners/core/idle_index.hpp"
#include "planners/core/policy.hpp"
#include "runtime/host/host.hpp"

namespace troupe::actors {

struct scheduler_options {
  std::shared_ptr<const troupe::cluster> cluster;
  std::shared_ptr<const planners::policy> policy;
  /// Called after each decide() with its duration in real microseconds and the number of jobs it
  /// started or stopped.
  std::function<void(double, std::size_t)> on_decision;
};

/// Keeps the job table, fed by journal entries, and calls the policy whenever something changed. It
/// contains no policy itself and changes no state: the orchestrator does.
class scheduler_state {
 public:
  scheduler_state() = default;
  void start(scheduler_actor::pointer self, runtime::host h, scheduler_options options,
             orchestrator_actor orchestrator, estimator_actor estimator);

  void learn(const journal_entry& e);
  void learn(const ledger_state& s);
  void learn(const presence& p);
  void learn(const plans_made& p);
  void learn(const settled& s);
  void learn(const job_progress& p);
  void take(const move_wanted& w);
  void decide();
  void end_startup();
  void begin_placing();
  void begin_round();
  void answer(address from, const query_jobs& q);
  void answer(address from, const explain_job& q);
  double round_s() const { return options_.policy->round_s(); }

 private:
  planners::job_view view_of(const job_record& j) const;
  void place(const job_record& j);
  void want_plans(const job_record& j);
  void refresh_idle(node_index n);
  void something_changed();
  void propose(std::vector<planners::decision> decisions);
  void withdraw(job_id job);
  void withdraw_hopeless();
  bool start_pending();
  bool make_moves();
  reason why_immovable(job_id job) const;
  void reply_to_move(const move_wanted& w, expected<planners::decision> made);
  planners::snapshot look();
  bool placing() const { return knows_ledger_ && !starting_; }
  std::string nodes_not_heard() const;
  std::string waiting_reason(const job_record& j) const;
  const shared_reply& reply_to_all();
  query_reply reply_about_nodes() const;
  job_status status_of(const job_record& j) const;
  std::vector<considered_plan> consider(const job_record& j) const;
  std::string summary_of(const job_record& j);

  scheduler_actor::pointer self_ = nullptr;
  runtime::host host_;
  scheduler_options options_;
  orchestrator_actor orchestrator_;
  estimator_actor estimator_;
  std::optional<ledger> ledger_;
  std::optional<planners::idle_index> idle_;
  std::optional<planners::idle_index> not_kept_;  // of idle_, while GPUs are kept for somebody
  std::vector<bool> present_;
  std::set<address> gateways_present_;
  planners::job_views waiting_, running_;
  std::map<job_id, plans_made> plans_;  // by job; those of ended jobs are for explaining
  std::map<job_id, job_progress> progress_;
  std::map<job_id, double> wanted_;  // plans being made: for which memory factor
  pending_starts pending_;
  planners::job_views moving_;                     // those jobs
  std::set<job_id> stopping_;                      // jobs whose GPUs are being freed
  std::map<job_id, planners::decision> proposed_;  // starts and moves of the proposal in flight
  std::vector<move_wanted> wishes_;                // moves that somebody asks for
  std::map<job_id, move_wanted> answering_;        // those that are proposed
  std::deque<move_reply> answered_;                // the latest, for who asks again
  std::map<job_id, placement_note> notes_;         // of jobs that run, for explaining
  // Before it has come nothing is known, and nobody is answered.
  bool knows_ledger_ = false;
  std::vector<std::function<void()>> unanswered_;
  // For two or three heartbeats after its start the controller may not have heard from every node:
  // a job that were placed then would keep a bad place for all its life.
  bool starting_ = true, round_skipped_ = false;
  std::optional<shared_reply> reply_;  // what everybody who asks for all jobs is told
  double reply_s_ = 0;                 // when it was made
  bool reply_stale_ = true;
  mutable std::map<const std::vector<plan>*, bool> servable_;  // while a reply is made
  std::uint64_t proposals_ = 0;
  bool in_flight_ = false;  // a proposal is not settled yet: what it took is not in the snapshot
  bool asked_ = false;      // a decide_now is on its way
  bool changed_ = false;
};

scheduler_actor::behavior_type scheduler(scheduler_actor::stateful_pointer<scheduler_state> self,
                                         runtime::host h, scheduler_options options,
                                         orchestrator_actor orchestrator,
                                         estimator_actor estimator);

}  // namespace troupe::actors
