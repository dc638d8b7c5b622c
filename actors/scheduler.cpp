#include "actors/scheduler.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "actors/last_words.hpp"
#include "actors/post.hpp"
#include "actors/timing.hpp"
#include "planners/fits.hpp"
#include "planners/pipeline_placement.hpp"
#include "runtime/stopwatch.hpp"

namespace troupe::actors {

void scheduler_state::start(scheduler_actor::pointer self, runtime::host h,
                            scheduler_options options, orchestrator_actor orchestrator,
                            estimator_actor estimator) {
  self_ = self;
  host_ = std::move(h);
  options_ = std::move(options);
  orchestrator_ = std::move(orchestrator);
  estimator_ = std::move(estimator);
  ledger_.emplace(*options_.cluster);
  idle_.emplace(*options_.cluster);
  present_.assign(options_.cluster->nodes.size(), false);
  for (node_index n = 0; n < present_.size(); ++n) idle_->set_idle(n, 0);
  self_->send(orchestrator_, watch{scheduler_actor{self_}});
  if (options_.policy->round_s() > 0) self_->send(scheduler_actor{self_}, tick{});
}

// -- the job table
// -------------------------------------------------------------------------------------

void scheduler_state::learn(const journal_entry& e) {
  job_id job = 0;
  std::vector<node_index> nodes;
  if (const auto* ended = std::get_if<part_ended>(&e)) {
    const auto& g = ledger_->lease(ended->lease)->granted;  // the ledger may let go of it below
    job = g.job;
    nodes.push_back(g.parts[ended->part].node);
  }
  if (auto ok = ledger_->apply(e); !ok)
    throw std::runtime_error("the orchestrator contradicts itself: " + ok.error().text);
  if (const auto* accepted = std::get_if<job_accepted>(&e)) {
    want_plans(*ledger_->job(accepted->job));
  } else if (const auto* granted = std::get_if<lease_granted>(&e)) {
    job = granted->job;
    for (const auto& part : granted->parts) nodes.push_back(part.node);
  } else if (const auto* revoked = std::get_if<lease_revoked>(&e)) {
    job = ledger_->lease(revoked->lease)->granted.job;
  } else if (const auto* over = std::get_if<job_ended>(&e)) {
    job = over->job;
    wanted_.erase(job);
  } else if (const auto* old = std::get_if<jobs_forgotten>(&e)) {
    for (const auto id : old->jobs) plans_.erase(id);
  }
  for (auto n : nodes) refresh_idle(n);
  if (const auto* j = ledger_->job(job)) place(*j);
}

void scheduler_state::learn(const ledger_state& s) {
  *ledger_ = *s.book;
  for (node_index n = 0; n < present_.size(); ++n) refresh_idle(n);
  for (const auto& [id, j] : ledger_->jobs())
    if (!is_final(j.state)) place(j);
}

void scheduler_state::learn(const plans_made& p) {
  const auto* j = ledger_->job(p.job);
  if (!j || is_final(j->state) || p.memory_factor != j->memory_factor) return;
  plans_[p.job] = p;
  wanted_.erase(p.job);
  place(*j);
}

void scheduler_state::want_plans(const job_record& j) {
  if (auto it = wanted_.find(j.id); it != wanted_.end() && it->second == j.memory_factor) return;
  wanted_[j.id] = j.memory_factor;
  self_->send(estimator_, plans_wanted{j.id, j.spec, j.memory_factor, scheduler_actor{self_}});
}

planners::job_view scheduler_state::view_of(const job_record& j) const {
  planners::job_view v;
  v.id = j.id;
  v.spec = j.spec;
  v.submitted_s = j.submitted_s;
  if (auto it = plans_.find(j.id); it != plans_.end()) v.plans = it->second.plans;
  v.iterations_done = j.iterations_done;
  v.attempts = j.attempts;
  v.out_of_memory = j.out_of_memory;
  v.bytes_floor = j.bytes_floor;
  if (const auto* l = ledger_->lease(j.lease)) {
    v.started_s = l->granted.at_s;
    v.how = j.how;
    v.where = j.where;
    v.iteration_s = l->granted.iteration_s;
  }
  return v;
}

/// Puts a job where its state says: among those that wait, those that run, or neither.
void scheduler_state::place(const job_record& j) {
  // Before its plans are made, no policy sees it.
  const auto plans = plans_.find(j.id);
  const bool known = plans != plans_.end() && plans->second.memory_factor == j.memory_factor;
  if (!known && !is_final(j.state)) want_plans(j);
  const bool pipeline = planners::is_pipeline_job(*j.spec);
  const auto keep = [&](planners::job_views& views, job_state s) {
    if (known && j.state == s)
      views.insert_or_assign(j.id, view_of(j));
    else
      views.erase(j.id);
  };
  keep(pipeline ? waiting_pipelines_ : waiting_, job_state::waiting);
  keep(pipeline ? running_pipelines_ : running_, job_state::running);
  if (j.state == job_state::running || is_final(j.state)) moves_.erase(j.id);
  if (j.state != job_state::running) something_changed();
}

void scheduler_state::learn(const presence& p) {
  if (is_gateway(*options_.cluster, p.who)) {
    if (p.present)
      gateways_present_.insert(p.who);
    else
      gateways_present_.erase(p.who);
    return;
  }
  const auto n = node_of(*options_.cluster, p.who);
  present_[n] = p.present;
  refresh_idle(n);
  something_changed();
}

void scheduler_state::refresh_idle(node_index n) {
  idle_->set_idle(n, present_[n] ? ledger_->idle(n) : 0);
}

// -- deciding
// ------------------------------------------------------------------------------------------

planners::snapshot scheduler_state::look() const {
  // By the wall clock, as the times of the journal that it is compared with.
  return {host_.clock->wall_s(), *options_.cluster, *idle_, waiting_, running_,
          waiting_pipelines_,    running_pipelines_};
}

void scheduler_state::something_changed() {
  changed_ = true;
  if (in_flight_ || asked_) return;
  asked_ = true;
  self_->send(scheduler_actor{self_}, decide_now{});
}

void scheduler_state::decide() {
  asked_ = false;
  if (in_flight_ || !std::exchange(changed_, false)) return;
  if (options_.policy->round_s() > 0) return retry_moves();
  begin_round();
}

void scheduler_state::begin_round() {
  const auto s = look();
  const bool nobody = s.waiting.empty() && s.running.empty() && s.waiting_pipelines.empty() &&
                      s.running_pipelines.empty();
  if (in_flight_ || nobody) return;
  moves_.clear();
  const runtime::stopwatch watch;
  auto decisions = options_.policy->decide(s, host_.random);
  if (options_.on_decision) options_.on_decision(watch.us(), decisions.size());
  propose(std::move(decisions));
}

void scheduler_state::propose(std::vector<planners::decision> decisions) {
  if (decisions.empty()) return;
  proposal p;
  p.number = ++proposals_;
  for (const auto& d : decisions) {
    const auto* j = ledger_->job(d.job);
    p.specs.push_back(j ? j->spec : std::make_shared<const job_spec>());
    if (d.what == planners::decision::kind::start) proposed_[d.job] = d;
  }
  p.decisions = std::move(decisions);
  in_flight_ = true;
  self_->send(estimator_, std::move(p));
}

void scheduler_state::learn(const settled& s) {
  in_flight_ = false;
  for (const auto& [job, why] : s.refused)
    if (auto it = proposed_.find(job); it != proposed_.end()) moves_[job] = it->second;
  proposed_.clear();
  if (changed_) something_changed();
}

void scheduler_state::retry_moves() {
  std::vector<planners::decision> now_possible;
  for (const auto& [id, d] : moves_)
    if ((waiting_.contains(id) || waiting_pipelines_.contains(id)) &&
        planners::fits(*options_.cluster, *idle_, d.how, d.where))
      now_possible.push_back(d);
  propose(std::move(now_possible));
}

// -- what people ask
// -----------------------------------------------------------------------------------

job_status scheduler_state::status_of(const job_record& j) const {
  return {j.id,       j.spec->name, j.state, j.submitted_s,     j.started_s,       j.ended_s,
          j.attempts, j.how,        j.where, j.iterations_done, j.predicted_bytes, j.peak_bytes,
          j.detail,   j.owner};
}

void scheduler_state::answer(address from, const query_jobs& q) {
  constexpr std::size_t shown_ended = 100;
  const auto& c = *options_.cluster;
  query_reply reply{q.request, std::string{options_.policy->name()}, host_.clock->wall_s(), {}, {},
                    {}};
  if (const auto* j = ledger_->job(q.job)) reply.jobs.push_back(status_of(*j));
  if (q.job == 0) {
    std::size_t ended = ledger_->jobs().size() - ledger_->unfinished();
    for (const auto& [id, j] : ledger_->jobs()) {
      if (is_final(j.state) && ended-- > shown_ended) continue;
      reply.jobs.push_back(status_of(j));
    }
  }
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    const auto& node = c.nodes[n];
    reply.nodes.push_back({n, node.name, c.gpu_of(n).name, present_[n], node.gpus, idle_->idle(n)});
  }
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    if (!gateways_present_.contains(gateway_address(d)))
      reply.gateways_absent.push_back(c.datacenters[d].name);
  post(host_, from, reply);
}

void scheduler_state::answer(address from, const explain_job& q) {
  explanation reply;
  reply.request = q.request;
  if (const auto* j = ledger_->job(q.job)) {
    reply.job = status_of(*j);
    reply.summary = summary_of(*j);
    reply.plans = consider(*j);
    reply.memory = j->memory;
  } else {
    reply.summary = fmt::format("there is no job {}", q.job);
  }
  post(host_, from, reply);
}

std::string scheduler_state::summary_of(const job_record& j) const {
  const auto& c = *options_.cluster;
  std::string where;
  for (const auto& share : j.where)
    where += fmt::format("{}{} of {} ({})", where.empty() ? "" : ", ", share.gpus,
                         c.nodes[share.node].name, c.gpu_of(share.node).name);
  const auto how = fmt::format("data {} x tensor {}", j.how.data_parallel, j.how.tensor_parallel);
  switch (j.state) {
    case job_state::waiting:
      if (!plans_.contains(j.id)) return "its plans are being made";
      return options_.policy->why_waiting(look(), j.id).text;
    case job_state::running:
      return fmt::format("runs on GPUs {} with {}, predicted {:.2f} GB a GPU", where, how,
                         j.predicted_bytes / bytes_per_gb);
    case job_state::stopping:
      return fmt::format("is being stopped on GPUs {}: {}", where, j.detail);
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
  const bool placed = j.state != job_state::waiting && !j.where.empty();
  bool seen_chosen = false;
  for (const auto& p : *it->second.plans) {
    considered_plan considered{p, false, {}};
    const double gb = p.bytes_per_gpu / bytes_per_gb;
    if (placed && p.data_parallel == j.how.data_parallel &&
        p.tensor_parallel == j.how.tensor_parallel) {
      considered.chosen = seen_chosen = true;
      considered.verdict = "chosen: the first that idle GPUs could serve well";
    } else if (placed) {
      considered.verdict = seen_chosen ? "ranks below the chosen one"
                                       : "ranks higher, but idle GPUs could not serve it then";
    } else {
      const auto idle = idle_->idle_above(p.bytes_per_gpu);
      considered.verdict =
          fmt::format("needs {} GPU{} of more than {:.2f} GB; {} {} idle", p.gpus(),
                      p.gpus() == 1 ? "" : "s", gb, idle, idle == 1 ? "is" : "are");
    }
    result.push_back(std::move(considered));
  }
  return result;
}

scheduler_actor::behavior_type scheduler(scheduler_actor::stateful_pointer<scheduler_state> self,
                                         runtime::host h, scheduler_options options,
                                         orchestrator_actor orchestrator,
                                         estimator_actor estimator) {
  auto& s = self->state;
  begin_actor(self, "scheduler", [&] {
    s.start(self, std::move(h), std::move(options), std::move(orchestrator), std::move(estimator));
  });
  return {
      [&s](const ledger_event& m) { s.learn(*m.entry); },
      [&s](const ledger_state& m) { s.learn(m); },
      [&s](const presence& m) { s.learn(m); },
      [&s](const plans_made& m) { s.learn(m); },
      [&s](const decide_now&) { s.decide(); },
      [&s](const settled& m) { s.learn(m); },
      [&s, self](const tick&) {
        s.begin_round();
        self->delayed_send(scheduler_actor{self}, nanoseconds_of(s.round_s()), tick{});
      },
      [&s](const inbound<query_jobs>& m) { s.answer(m.from, m.body); },
      [&s](const inbound<explain_job>& m) { s.answer(m.from, m.body); },
  };
}

}  // namespace troupe::actors
