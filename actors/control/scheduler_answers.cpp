#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/control/scheduler.hpp"
#include "actors/protocol/post.hpp"
#include "planners/core/plan_text.hpp"
#include "planners/pipeline/placement.hpp"

// What the scheduler answers people who ask about jobs and nodes.

namespace troupe::actors {

/// Only the first word of an iteration counts: its time is when it was done.
void scheduler_state::learn(const job_progress& p) {
  auto& known = progress_[p.job];
  if (p.lease > known.lease || (p.lease == known.lease && p.iteration > known.iteration))
    known = p, reply_stale_ = true;
}

job_status scheduler_state::status_of(const job_record& j) const {
  job_status s;
  s.job = j.id;
  s.name = j.spec->name;
  s.state = j.state;
  s.submitted_s = j.submitted_s;
  s.started_s = j.started_s;
  s.ended_s = j.ended_s;
  s.attempts = j.attempts;
  s.how = j.how;
  // A job that waits holds nothing, whatever it held before.
  if (j.state == job_state::waiting)
    s.waiting_reason = waiting_reason(j);
  else
    s.where = j.where;
  s.iterations_done = j.iterations_done;
  s.predicted_bytes = j.predicted_bytes;
  s.peak_bytes = j.peak_bytes;
  s.detail = j.detail;
  s.owner = j.owner;
  s.model = j.spec->model.name;
  s.command = j.spec->command;
  s.priority = j.spec->priority;
  s.exit_code = j.exit_code;
  const auto known = progress_.find(j.id);
  add_progress(s, j, ledger_->lease(j.lease), known == progress_.end() ? nullptr : &known->second,
               host_.clock->wall_s());
  return s;
}

std::string scheduler_state::waiting_reason(const job_record& j) const {
  if (j.suspended) return "suspended";
  const auto plans = plans_.find(j.id);
  if (plans == plans_.end() || plans->second.memory_factor != j.memory_factor) return "planning";
  if (starting_) return "nodes to report";
  if (!plans->second.plans || plans->second.plans->empty()) return "no feasible plan";
  const auto* list = plans->second.plans.get();
  const auto [known, is_new] = servable_.try_emplace(list, false);
  if (is_new)
    known->second = std::ranges::any_of(
        *list, [&](const plan& p) { return idle_->idle_above(p.bytes_per_gpu) >= p.gpus(); });
  return known->second ? "priority" : "resources";
}

std::string scheduler_state::nodes_not_heard() const {
  constexpr std::size_t shown = 10;
  std::string names;
  std::size_t absent = 0;
  for (node_index n = 0; n < present_.size(); ++n)
    if (!present_[n] && ++absent <= shown)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", options_.cluster->nodes[n].name);
  if (absent > shown) names += fmt::format(" and {} more", absent - shown);
  return names;
}

const shared_reply& scheduler_state::reply_to_all() {
  constexpr std::size_t shown_ended = 100, few_jobs = 1000;
  constexpr double s_a_job = 10e-6;  // so that of many jobs no more than a tenth of a thread goes
  const auto many = ledger_->unfinished() > few_jobs;
  const double now_s = host_.clock->now_s();
  const double due_s = reply_s_ + (many ? s_a_job * double(ledger_->unfinished()) : 0);
  // Progress, and the time that is left, change without any news.
  const double keeps_s = many ? 1 : 0.2;
  const bool stale = reply_stale_ || now_s >= reply_s_ + keeps_s;
  if (reply_ && (!stale || now_s < due_s)) return *reply_;
  auto all = reply_about_nodes();
  std::size_t ended = ledger_->jobs().size() - ledger_->unfinished();
  servable_.clear();
  for (const auto& [id, j] : ledger_->jobs()) {
    if (is_final(j.state) && ended-- > shown_ended) continue;
    all.jobs.push_back(status_of(j));
  }
  reply_stale_ = false;
  reply_s_ = now_s;
  return reply_.emplace(all);
}

query_reply scheduler_state::reply_about_nodes() const {
  const auto& c = *options_.cluster;
  query_reply reply;
  reply.policy = options_.policy->name();
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    const auto& node = c.nodes[n];
    reply.nodes.push_back({n, node.name, c.gpu_of(n).name, present_[n], node.gpus, idle_->idle(n)});
  }
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    if (!gateways_present_.contains(gateway_address(d)))
      reply.gateways_absent.push_back(c.datacenters[d].name);
  return reply;
}

void scheduler_state::answer(address from, const query_jobs& q) {
  if (!knows_ledger_) return unanswered_.push_back([=, this] { answer(from, q); });
  // What people read is by the wall clock, as the journal's times are.
  const double now_s = host_.clock->wall_s();
  if (q.job == 0) {
    host_.net->send(from, reply_to_all().encode_for(host_.net->self(), from, q.request, now_s),
                    runtime::lane_of(message{query_reply{}}));
    return;
  }
  auto reply = reply_about_nodes();
  reply.request = q.request;
  reply.now_s = now_s;
  servable_.clear();
  if (const auto* j = ledger_->job(q.job)) reply.jobs.push_back(status_of(*j));
  post(host_, from, reply);
}

void scheduler_state::answer(address from, const explain_job& q) {
  if (!knows_ledger_) return unanswered_.push_back([=, this] { answer(from, q); });
  explanation reply;
  reply.request = q.request;
  servable_.clear();
  if (const auto* j = ledger_->job(q.job)) {
    reply.job = status_of(*j);
    reply.metric = metric_name(*j->spec);
    if (const auto note = notes_.find(j->id); note != notes_.end() && !j->where.empty() &&
                                              !is_final(j->state) && j->state != job_state::waiting)
      reply.placement = explain_nodes(
          *options_.cluster, *j->spec, j->how, j->where, note->second,
          options_.policy->name() == "frenzy" && !planners::is_pipeline_job(*j->spec));
    if (const auto p = plans_.find(j->id); p != plans_.end() && !p->second.warning.empty())
      reply.placement.insert(reply.placement.begin(), p->second.warning);
    reply.summary = summary_of(*j);
    reply.plans = consider(*j);
    reply.memory = j->memory;
  } else {
    reply.summary = fmt::format("no job {}", q.job);
  }
  post(host_, from, reply);
}

std::string scheduler_state::summary_of(const job_record& j) {
  const auto& c = *options_.cluster;
  std::string where;
  for (const auto& share : j.where)
    where += fmt::format("{}{} of {} ({})", where.empty() ? "" : ", ", share.gpus,
                         c.nodes[share.node].name, c.gpu_of(share.node).name);
  const auto how = planners::split_text(j.how);
  switch (j.state) {
    case job_state::waiting:
      if (j.suspended)
        return fmt::format("suspended after iteration {} of {}; `troupe resume {}` resumes it",
                           j.iterations_done, j.spec->iterations, j.id);
      if (const auto p = plans_.find(j.id);
          p == plans_.end() || p->second.memory_factor != j.memory_factor)
        return "planning is in progress";
      if (starting_)
        return fmt::format("the controller has just started and waits for reports from nodes {}",
                           nodes_not_heard());
      return options_.policy->why_waiting(look(), j.id).text;
    case job_state::running:
      return fmt::format("running on GPUs {} with {}, predicted {:.2f} GB per GPU", where, how,
                         j.predicted_bytes / bytes_per_gb);
    case job_state::stopping:
      if (const auto* l = ledger_->lease(j.lease); l && !l->detail.empty())
        return fmt::format("stopping on GPUs {}: {}", where, l->detail);
      return fmt::format("stopping on GPUs {}", where);
    case job_state::finished:
      return fmt::format("finished after {:.0f} s ({} attempt{}), last on GPUs {} with {}",
                         j.ended_s - j.submitted_s, j.attempts, j.attempts == 1 ? "" : "s", where,
                         how);
    default:
      return fmt::format("{}: {}", to_string(j.state), j.detail);
  }
}

std::vector<considered_plan> scheduler_state::consider(const job_record& j) const {
  std::vector<considered_plan> result;
  auto it = plans_.find(j.id);
  if (it == plans_.end() || !it->second.plans) return result;
  const auto& spec = *j.spec;
  const auto is_chosen = [&](const plan& p) {
    return p.data_parallel == j.how.data_parallel && p.tensor_parallel == j.how.tensor_parallel &&
           p.pipeline_parallel == j.how.pipeline_parallel;
  };
  const bool placed = j.state != job_state::waiting && !j.where.empty();
  const auto unit = metric_name(spec);
  bool seen_chosen = false;
  for (const auto& p : *it->second.plans) {
    considered_plan considered{p, false, {}, metric_of(spec, p)};
    const double gb = p.bytes_per_gpu / bytes_per_gb;
    if (placed && is_chosen(p)) {
      considered.chosen = seen_chosen = true;
      considered.verdict =
          fmt::format("chosen: best by {} among the plans that fit the idle GPUs", unit);
    } else if (placed && seen_chosen) {
      considered.verdict = fmt::format("{:.4g} {}; the chosen plan has {:.4g}", considered.metric,
                                       unit, metric_of(spec, j.how));
    } else if (placed && p.bytes_per_gpu <= j.bytes_floor) {
      considered.verdict = fmt::format("ran out of memory at {:.2f} GB per GPU earlier",
                                       j.bytes_floor / bytes_per_gb);
    } else if (placed) {
      considered.verdict = fmt::format(
          "ranks higher, but {} GPU{} with more than {:.2f} GB were not idle, or too scattered",
          p.gpus(), p.gpus() == 1 ? "" : "s", gb);
    } else {
      const auto idle = idle_->idle_above(p.bytes_per_gpu);
      considered.verdict =
          fmt::format("needs {} GPU{} with more than {:.2f} GB; {} {} idle", p.gpus(),
                      p.gpus() == 1 ? "" : "s", gb, idle, idle == 1 ? "is" : "are");
    }
    result.push_back(std::move(considered));
  }
  return result;
}

}  // namespace troupe::actors
