// What the scheduler answers to questions about jobs and nodes.

#include <algorithm>
#include <string>
#include <utility>

#include "actors/control/scheduler.hpp"
#include "actors/protocol/messenger.hpp"

namespace troupe::actors {

job_explainer scheduler_state::explainer(const runtime::caller& viewer) const {
  return job_explainer{{cluster(), *options_.policy, *state_, plans_, progress_, notes_, traffic_,
                        starting_, journal_time_s(), viewer}};
}

/// Operators see the same reply, every other user his own.
const shared_reply& scheduler_state::reply_to_all(const runtime::caller& viewer) {
  constexpr std::size_t shown_ended = 100, few_jobs = 1000, kept_replies = 64;
  constexpr double s_a_job = 10e-6;  // limits the time for many jobs to a tenth of a thread
  const auto many = book().unfinished() > few_jobs;
  const double now_s = host_.clock->now_s();
  const double pause_s = many ? s_a_job * double(book().unfinished()) : 0;
  // Progress and remaining time change without any event.
  const double keeps_s = many ? 1 : 0.2;
  const auto key = viewer.is_operator ? std::string{} : viewer.name;
  if (const auto known = replies_.find(key); known != replies_.end()) {
    const bool stale =
        known->second.version != reply_version_ || now_s >= known->second.made_s + keeps_s;
    // Many users together get no more of the thread than one.
    const double users = static_cast<double>(replies_.size());
    if (!stale || now_s < known->second.made_s + pause_s * users) return known->second.reply;
  }
  auto explain = explainer(viewer);
  auto all = explain.nodes();
  std::size_t ended = book().jobs().size() - book().unfinished();
  for (const auto& [id, j] : book().jobs()) {
    if (is_final(j.state) && ended-- > shown_ended) continue;
    all.jobs.push_back(explain.status_of(j));
  }
  constexpr double unused_s = 10;
  std::erase_if(replies_, [&](const auto& r) { return now_s > r.second.made_s + unused_s; });
  if (replies_.size() >= kept_replies) replies_.clear();
  return replies_.insert_or_assign(key, kept_reply{shared_reply{all}, now_s, reply_version_})
      .first->second.reply;
}

void scheduler_state::on_query_jobs(address from, const runtime::caller& who, const query_jobs& q) {
  if (!state_) return waiting_queries_.push_back([=, this] { on_query_jobs(from, who, q); });
  const double now_s = journal_time_s();
  if (q.job == 0) {
    host_.net->send(from, reply_to_all(who).encode_for(host_.net->self(), from, q.request, now_s),
                    runtime::lane_of(message{query_reply{}}));
    return;
  }
  auto explain = explainer(who);
  auto reply = explain.nodes();
  reply.request = q.request;
  reply.now_s = now_s;
  if (q.view.value_or(false)) reply.view = explain.view(counts_);
  if (reply.view && !cluster().fronts.empty())
    reply.view->fronts = fronts_.list(cluster(), host_.clock->now_s());
  if (const auto* j = book().job(q.job)) reply.jobs.push_back(explain.status_of(*j));
  send_message(host_, from, reply);
}

void scheduler_state::on_explain_job(address from, const runtime::caller& who,
                                     const explain_job& q) {
  if (!state_) return waiting_queries_.push_back([=, this] { on_explain_job(from, who, q); });
  auto now = policy_snapshot();
  std::vector<planners::unusable_node> unusable;
  for (node_index n = 0; n < state_->nodes_present->size(); ++n)
    if (!(*state_->nodes_present)[n])
      unusable.push_back({n, "absent"});
    else if (book().is_drained(n))
      unusable.push_back({n, "drained"});
  now.unusable = unusable;
  auto reply = explainer(who).explain(q.job, now);
  reply.request = q.request;
  send_message(host_, from, reply);
}

}  // namespace troupe::actors
