#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/control/interfaces/controller_options.hpp"
#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/ledger/cluster_state.hpp"
#include "actors/control/scheduling/job_views.hpp"
#include "actors/control/scheduling/pending_starts.hpp"
#include "actors/control/scheduling/policy_faults.hpp"
#include "actors/protocol/actor_state.hpp"
#include "planners/cluster/idle_index.hpp"
#include "planners/cluster/view_changes.hpp"
#include "planners/policy/policy.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// Shows the policy the published state whenever something changed, and proposes its decisions. It
/// makes no decisions and changes nothing itself: the orchestrator does.
class scheduler_state {
 public:
  using interface = scheduler_actor;
  static constexpr const char* actor_name = "scheduler";

  void start(scheduler_actor::pointer self, runtime::host h, controller_options options,
             orchestrator_actor orchestrator, estimator_actor estimator);

  void on(const state_changed& m);
  void on(const plans_reply& m);
  void on(const proposal_result& m);
  void on(const progress_report& m);
  void on(const move_request& m);
  void on(const startup_over&);
  void on(const decide_now&);
  void on(const tick&);
  void on(const backoffs_due&);
  void on(const watch_scheduling& m);
  policy_view on(const why_waiting& m);

 private:
  const ledger& book() const { return state_->book; }
  const troupe::cluster& cluster() const { return state_ ? *state_->cluster : *options_.cluster; }
  void begin_with(std::shared_ptr<const cluster_state> now);
  void on_job_changed(job_id id, const job_record* before);
  void update_views(const job_record& j);
  void update_union(const job_record& j);
  void note_kind(job_id id);
  void list_unusable();
  void want_plans(const job_record& j);
  void something_changed() {
    changed_s_ = host_.clock->now_s();
    decide_soon();
  }
  void job_arrived();
  void decide_soon();
  void starts_may_be_due();
  void wake();
  template <class Call>
  auto guarded(Call call) -> decltype(call());
  bool ask_again(const planners::snapshot& s);
  void remember_arrival(const job_record& j, const plans_reply& p);
  void begin_placing();
  void begin_round();
  std::vector<planners::decision> ask_policy(const planners::snapshot& s);
  void count(const std::vector<planners::decision>& decisions, double took_s);
  void decide_again_in(double seconds);
  void propose(std::vector<planners::decision> decisions);
  bool waits_for_retry(const job_record& j) const;
  void set_backoff_timer();
  void withdraw(job_id job);
  void withdraw_hopeless();
  bool start_pending();
  bool make_moves();
  void reply_to_move(const move_request& w, expected<planners::decision> made);
  /// Now, among the times of the published state.
  double journal_time_s() const { return host_.clock->now_s() + state_->journal_ahead_s; }
  planners::snapshot policy_snapshot();
  void check_views() const;
  bool placing() const { return state_ && !starting_; }
  void show_counts();

  scheduler_actor::pointer self_ = nullptr;
  runtime::host host_;
  controller_options options_;
  orchestrator_actor orchestrator_;
  estimator_actor estimator_;
  status_actor status_;                         // null: none watches
  std::shared_ptr<const cluster_state> state_;  // the latest published one
  std::optional<planners::idle_index>
      not_kept_;  // idle GPUs without reserved ones, if any are reserved
  planners::job_views waiting_, running_, unions_;
  planners::view_changes view_changes_{new_view_number()};  // of waiting_ and running_
  std::optional<planners::kept_gpus> kept_;  // by the last decisions, for a job that waits
  planners::wait_notes notes_;               // of those
  std::vector<planners::unusable_node> unusable_;
  std::vector<planners::recent_arrival> arrivals_;  // the latest, oldest first
  double changed_s_ = 0;                 // when a policy was last given a reason to decide
  std::map<job_id, plans_reply> plans_;  // by job, while it exists
  std::map<job_id, progress_report> progress_;
  std::map<job_id, double> wanted_;  // plans being computed: their memory factor
  pending_starts pending_;
  planners::job_views moving_;                    // those jobs
  std::set<std::pair<double, job_id>> backoffs_;  // jobs that no policy sees before this time
  std::optional<double> backoff_timer_s_;         // of the earliest, on the host's clock
  std::set<job_id> stopping_;                     // jobs whose GPUs are being released
  std::set<job_id> not_plain_;  // of the lists that a policy sees: snapshot::all_plain
  std::map<job_id, planners::decision> proposed_;  // starts and moves of the proposal in flight
  std::vector<move_request> move_requests_;        // requested by users
  std::map<job_id, move_request> proposed_moves_;  // of those
  std::deque<move_reply> move_replies_;            // the latest, for repeated requests
  // For two or three heartbeats after its start the controller may not know every node: a job that
  // is placed then would keep a bad placement.
  bool starting_ = true, round_skipped_ = false;
  std::optional<double> again_at_s_;  // the next call of an event-driven policy without an event
  policy_faults faults_;
  std::uint64_t proposals_ = 0;
  scheduling_counts counts_;
  bool in_flight_ = false;   // a proposal is being processed: the snapshot does not reflect it yet
  bool asked_ = false;       // a decide_now has been sent
  bool changed_ = false;     // since the policy was asked
  bool starts_due_ = false;  // reserved starts may be possible, or have been made
  std::uint32_t shown_idle_ = 0;  // GPUs, when the policy was last asked
};

}  // namespace troupe::actors
