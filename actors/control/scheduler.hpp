#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/control/cluster_state.hpp"
#include "actors/control/job_explainer.hpp"
#include "actors/control/pending_starts.hpp"
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

/// Shows the policy what the orchestrator has published whenever something changed, and proposes
/// what it decides. It holds no policy of its own, and changes nothing: the orchestrator does.
class scheduler_state {
 public:
  scheduler_state() = default;
  void start(scheduler_actor::pointer self, runtime::host h, scheduler_options options,
             orchestrator_actor orchestrator, estimator_actor estimator);

  void on_state_changed(const state_changed& m);
  void on_plans_made(const plans_made& m);
  void on_settled(const settled& m);
  void on_job_progress(const job_progress& m);
  void on_move_wanted(const move_wanted& m);
  void on_startup_over();
  void on_decide_now();
  void on_tick();
  void on_query_jobs(address from, const query_jobs& q);
  void on_explain_job(address from, const explain_job& q);

 private:
  const ledger& book() const { return state_->book; }
  void on_job_changed(job_id id, const job_record* before);
  planners::job_view view_of(const job_record& j) const;
  void update_views(const job_record& j);
  void want_plans(const job_record& j);
  void something_changed();
  void begin_placing();
  void begin_round();
  void propose(std::vector<planners::decision> decisions);
  void withdraw(job_id job);
  void withdraw_hopeless();
  bool start_pending();
  bool make_moves();
  reason why_immovable(job_id job) const;
  void reply_to_move(const move_wanted& w, expected<planners::decision> made);
  planners::snapshot policy_snapshot();
  bool placing() const { return state_ && !starting_; }
  const shared_reply& reply_to_all();
  job_explainer explainer() const;

  scheduler_actor::pointer self_ = nullptr;
  runtime::host host_;
  scheduler_options options_;
  orchestrator_actor orchestrator_;
  estimator_actor estimator_;
  // The newest that was published. Before it has come nothing is known, and nobody is answered.
  std::shared_ptr<const cluster_state> state_;
  std::vector<std::function<void()>> unanswered_;
  std::optional<planners::idle_index> not_kept_;  // of what is idle, while GPUs are kept for some
  planners::job_views waiting_, running_;
  std::map<job_id, plans_made> plans_;  // by job; those of ended jobs are for explaining
  std::map<job_id, job_progress> progress_;
  std::map<job_id, double> wanted_;  // plans being made: for which memory factor
  pending_starts pending_;
  planners::job_views moving_;                     // those jobs
  std::set<job_id> stopping_;                      // jobs whose GPUs are being freed
  std::map<job_id, planners::decision> proposed_;  // starts and moves of the proposal in flight
  std::vector<move_wanted> moves_wanted_;          // by people
  std::map<job_id, move_wanted> moves_proposed_;   // of those
  std::deque<move_reply> moves_answered_;          // the latest, for who asks again
  std::map<job_id, placement_note> notes_;         // of jobs that run, for explaining
  // For two or three heartbeats after its start the controller may not have heard from every node:
  // a job that were placed then would keep a bad place for all its life.
  bool starting_ = true, round_skipped_ = false;
  std::optional<shared_reply> reply_;  // what everybody who asks for all jobs is told
  double reply_s_ = 0;                 // when it was made
  bool reply_stale_ = true;
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
