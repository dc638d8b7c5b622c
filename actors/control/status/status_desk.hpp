#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/control/interfaces/controller_options.hpp"
#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/ledger/cluster_state.hpp"
#include "actors/control/status/front_reports.hpp"
#include "actors/control/status/job_explainer.hpp"
#include "actors/protocol/actor_state.hpp"
#include "messages/codec/shared_reply.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// Answers clients' questions about jobs, nodes, gateways and fronts. Nothing here decides anything
/// or is durable: the desk follows the published states as any subscriber does, and collects what
/// the others send it for people. A long list of jobs therefore delays no decision.
///
///     orchestrator -- state_changed, progress_report, gateway_traffic_changed --+
///     scheduler ----- plans_reply, placements_proposed, scheduling_changed --+--> status desk
///     fronts -------- front_report ------------------------------------------+         |
///     clients <------ query_reply, explanation <---------------------------------------+
///
/// The policy itself runs only in the scheduler, since policies are not thread-safe: an explanation
/// asks it there (why_waiting). State and policy may be one message apart; both are true of a
/// moment after the question was asked.
class status_desk_state {
 public:
  using interface = status_actor;
  static constexpr const char* actor_name = "status desk";

  void start(status_actor::pointer self, runtime::host h, controller_options options,
             const orchestrator_actor& orchestrator, scheduler_actor scheduler);

  void on(const state_changed& m);
  void on(const progress_report& m);
  void on(const gateway_traffic_changed& m);
  void on(const plans_reply& m);
  void on(const placements_proposed& m);
  void on(const scheduling_changed& m);
  void on(const inbound<front_report>& m);
  // A query that waits keeps no credit of its client's connection, so it is not the message.
  void on(const inbound<query_jobs>& m) { answer_query(m.from, m.sender, m.body); }
  void on(const inbound<explain_job>& m) { answer_query(m.from, m.sender, m.body); }

 private:
  const ledger& book() const { return state_->book; }
  const troupe::cluster& cluster() const { return state_ ? *state_->cluster : *options_.cluster; }
  /// Now, among the times of the published state.
  double journal_time_s() const { return host_.clock->now_s() + state_->journal_ahead_s; }
  void answer_query(address from, const runtime::caller& who, const query_jobs& q);
  void answer_query(address from, const runtime::caller& who, const explain_job& q);
  void follow_cluster();
  void on_job_changed(job_id id);
  job_explainer explainer(const runtime::caller& viewer) const;
  const shared_reply& reply_to_all(const runtime::caller& viewer, job_id from);
  query_reply page_of_jobs(const runtime::caller& viewer, job_id from) const;

  status_actor::pointer self_ = nullptr;
  runtime::host host_;
  controller_options options_;
  scheduler_actor scheduler_;
  // The latest published state. Before the first one, queries wait.
  std::shared_ptr<const cluster_state> state_;
  std::vector<std::function<void()>> waiting_queries_;
  std::map<job_id, plans_reply> plans_;  // those of ended jobs are kept for explanations
  std::map<job_id, progress_report> progress_;
  std::map<job_id, placement_note> notes_;            // of running jobs
  std::map<std::uint32_t, gateway_traffic> traffic_;  // by datacenter
  front_reports fronts_;
  scheduling_changed scheduling_;
  // Replies to queries for all jobs, by user and first job; one user for all operators.
  struct kept_reply {
    shared_reply reply;
    double made_s = 0;
    std::uint64_t version = 0;
  };
  std::map<std::pair<std::string, job_id>, kept_reply> replies_;
  std::uint64_t reply_version_ = 0;  // of what they are made from
};

}  // namespace troupe::actors
