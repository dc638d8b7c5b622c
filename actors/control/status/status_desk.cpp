#include "actors/control/status/status_desk.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "actors/control/ledger/progress_report.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/protocol/permissions.hpp"
#include "messages/base/cut_text.hpp"
#include "messages/base/find_in.hpp"

namespace troupe::actors {

void status_desk_state::start(status_actor::pointer self, runtime::host h,
                              controller_options options, const orchestrator_actor& orchestrator,
                              scheduler_actor scheduler) {
  self_ = self;
  host_ = std::move(h);
  options_ = std::move(options);
  scheduler_ = std::move(scheduler);
  self_->send(orchestrator, begin_status{status_actor{self_}});
  self_->send(scheduler_, watch_scheduling{status_actor{self_}});
}

// -- what the desk follows

void status_desk_state::on(const state_changed& m) {
  const auto before = std::exchange(state_, m.now);
  ++reply_version_;
  if (!before || before->cluster->version != state_->cluster->version) follow_cluster();
  for (const auto id : m.jobs) on_job_changed(id);
  if (before) return;
  for (const auto& answer_now : std::exchange(waiting_queries_, {})) answer_now();
}

/// Plans of another cluster name GPUs that this one may not have. The scheduler may have followed
/// first: plans for the new cluster that are here already are kept.
void status_desk_state::follow_cluster() {
  const auto version = cluster().version;
  std::erase_if(plans_, [version](const auto& p) { return p.second.cluster != version; });
  for (auto& [id, note] : notes_) {
    note.present.resize(cluster().nodes.size(), false);
    note.idle.resize(cluster().nodes.size(), 0);
    note.drained.resize(cluster().nodes.size(), false);
  }
}

void status_desk_state::on_job_changed(job_id id) {
  const auto* j = book().job(id);
  if (!j || is_final(j->state)) notes_.erase(id);
  if (j) return;
  plans_.erase(id);
  progress_.erase(id);
}

/// Only the first report of an iteration counts: its time is that of completion.
void status_desk_state::on(const progress_report& p) {
  if (take_newer(progress_[p.job], p)) ++reply_version_;
}

void status_desk_state::on(const gateway_traffic_changed& m) {
  traffic_[m.datacenter] = m.traffic;
  ++reply_version_;
}

void status_desk_state::on(const plans_reply& m) {
  plans_[m.job] = m;
  ++reply_version_;
}

void status_desk_state::on(const placements_proposed& m) {
  for (const auto& [job, note] : m.notes) notes_[job] = note;
}

void status_desk_state::on(const scheduling_changed& m) {
  const auto kept_for = [](const scheduling_changed& s) { return s.kept ? s.kept->job : 0; };
  const auto before = std::exchange(scheduling_, m);
  if (before.starting != m.starting || kept_for(before) != kept_for(m)) ++reply_version_;
}

void status_desk_state::on(const inbound<front_report>& m) {
  // The front learns of the cluster's changes from here alone: it sends the controller nothing
  // else.
  if (m.body.cluster.value_or(0) < cluster().version)
    send_message(host_, m.from, cluster_update{cluster()});
  if (state_) fronts_.take(cluster(), book(), m.from, m.body, host_.clock->now_s());
}

// -- answers

job_explainer status_desk_state::explainer(const runtime::caller& viewer) const {
  return job_explainer{{cluster(), *options_.policy, *state_, plans_, progress_, notes_, traffic_,
                        scheduling_.starting, journal_time_s(), viewer, scheduling_.kept}};
}

namespace {

// A page of jobs, whatever their users have given them to show: a frame may have 64 MiB, and a
// client waits for one only for some seconds.
constexpr std::size_t max_page_jobs = 4000, max_page_bytes = std::size_t{4} << 20;

/// For a list, in which nobody reads a script; a question for the one job gets all of it.
void shorten(job_status& s) {
  constexpr std::size_t max_command_bytes = 300, max_text_bytes = 500;
  std::size_t left = max_command_bytes;
  for (std::size_t i = 0; i < s.command.size(); ++i) {
    auto& word = s.command[i];
    if (word.size() > left) word = cut_text(std::move(word), left);
    left -= std::min(left, word.size() + 1);
    if (left > 0 || i + 1 == s.command.size()) continue;
    const auto more = s.command.size() - i - 1;
    s.command.resize(i + 1);
    s.command.push_back(fmt::format("... [{} more words, cut]", more));
  }
  s.model = cut_text(std::move(s.model), max_text_bytes);
  s.detail = cut_text(std::move(s.detail), max_text_bytes);
  s.waiting_reason = cut_text(std::move(s.waiting_reason), max_text_bytes);
}

}  // namespace

/// All jobs that have not ended and the newest of the others, from this number on.
query_reply status_desk_state::page_of_jobs(const runtime::caller& viewer, job_id from) const {
  constexpr std::size_t shown_ended = 100;
  auto explain = explainer(viewer);
  auto all = explain.nodes();
  std::size_t ended = 0, bytes = 0;
  for (const auto& [id, j] : book().jobs()) ended += is_final(j.state) && !j.members;
  if (ended > shown_ended) all.older_left_out = true;
  for (const auto& [id, j] : book().jobs()) {
    if (j.members || (is_final(j.state) && ended-- > shown_ended) || id < from) continue;
    auto status = explain.status_of(j);
    shorten(status);
    bytes += packed_bytes(status);
    if (!all.jobs.empty() && (bytes > max_page_bytes || all.jobs.size() == max_page_jobs)) {
      all.next = id;
      break;
    }
    all.jobs.push_back(std::move(status));
  }
  return all;
}

/// The list of all jobs takes time in proportion to their number, and every dashboard and every
/// `troupe jobs --follow` asks for it again and again. One encoded reply serves all who may see the
/// same: operators see everything, and every other user the arguments of the own commands only. It
/// is made again when something has changed, and, with many jobs, so rarely that making it takes at
/// most a tenth of this actor's time, however many users ask.
const shared_reply& status_desk_state::reply_to_all(const runtime::caller& viewer, job_id from) {
  constexpr std::size_t few_jobs = 1000, kept_replies = 64;
  constexpr double s_a_job = 10e-6;  // limits the time for many jobs to a tenth of a thread
  const auto many = book().unfinished() > few_jobs;
  const double now_s = host_.clock->now_s();
  const double pause_s = many ? s_a_job * double(std::min(book().unfinished(), max_page_jobs)) : 0;
  // Progress and remaining time change without any event.
  const double keeps_s = many ? 1 : 0.2;
  const auto key = std::pair{viewer.is_operator ? std::string{} : viewer.name, from};
  if (const auto* known = find_in(replies_, key)) {
    const bool stale = known->version != reply_version_ || now_s >= known->made_s + keeps_s;
    // Many users together get no more of the thread than one.
    const double users = static_cast<double>(replies_.size());
    if (!stale || now_s < known->made_s + pause_s * users) return known->reply;
  }
  const auto all = page_of_jobs(viewer, from);
  constexpr double unused_s = 10;
  std::erase_if(replies_, [&](const auto& r) { return now_s > r.second.made_s + unused_s; });
  if (replies_.size() >= kept_replies) replies_.clear();
  return replies_.insert_or_assign(key, kept_reply{shared_reply{all}, now_s, reply_version_})
      .first->second.reply;
}

void status_desk_state::answer_query(address from, const runtime::caller& who,
                                     const query_jobs& q) {
  if (!state_) return waiting_queries_.push_back([=, this] { answer_query(from, who, q); });
  const double now_s = journal_time_s();
  if (q.job == 0) {
    const auto& page = reply_to_all(who, q.from.value_or(0));
    host_.net->send(from, page.encode_for(host_.net->self(), from, q.request, now_s),
                    runtime::lane_of(message{query_reply{}}));
    return;
  }
  auto explain = explainer(who);
  auto reply = explain.nodes();
  reply.request = q.request;
  reply.now_s = now_s;
  if (q.view.value_or(false)) reply.view = explain.view(scheduling_.counts);
  if (reply.view && !cluster().fronts.empty())
    reply.view->fronts = fronts_.list(cluster(), host_.clock->now_s());
  if (const auto* j = book().job(q.job); j && !j->members)
    reply.jobs.push_back(explain.status_of(*j));
  // It has the job's environment and the arguments of its command.
  if (const auto* j = book().job(q.job);
      j && !j->members && q.spec.value_or(false) && may_act_on(who, j->owner))
    reply.spec = *j->spec;
  send_message(host_, from, reply);
}

/// The scheduler is asked first, and the explanation is made from the state at its answer.
void status_desk_state::answer_query(address from, const runtime::caller& who,
                                     const explain_job& q) {
  if (!state_) return waiting_queries_.push_back([=, this] { answer_query(from, who, q); });
  self_->request(scheduler_, caf::infinite, why_waiting{q.job})
      .then([this, from, who, q](const policy_view& by_policy) {
        auto reply = explainer(who).explain(q.job, by_policy);
        reply.request = q.request;
        send_message(host_, from, reply);
      });
}

}  // namespace troupe::actors
