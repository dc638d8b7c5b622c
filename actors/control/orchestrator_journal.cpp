#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "actors/control/journal_time.hpp"
#include "actors/control/orchestrator.hpp"
#include "actors/protocol/messenger.hpp"
#include "runtime/host/log.hpp"

// How the orchestrator records entries, and acts on them once they are durable.

namespace troupe::actors {

/// Everything that is recorded has a time of the journal, the cluster before the epoch too.
void orchestrator_state::begin_time() {
  const clock_reading clock{host_.clock->wall_s(), now(), options_.boot};
  journal_ahead_s_ = journal_time(clock, ledger_->clock(), ledger_->latest_s()) - clock.monotonic_s;
}

std::uint64_t orchestrator_state::wall_ms() const {
  return static_cast<std::uint64_t>(std::max(0.0, host_.clock->wall_s()) * 1000);
}

void orchestrator_state::begin_epoch() {
  const auto before = ledger_->journal(), id = host_.journal->id();
  // Epochs are derived from the wall clock, so that they differ between two histories of one
  // journal (after a restored disk): see check_history. So are the leases of a new journal, since
  // their numbers are fencing tokens and must not repeat.
  const auto epoch = std::max(ledger_->epoch() + 1, wall_ms());
  const auto monotonic_s = now();
  const clock_reading clock{monotonic_s + journal_ahead_s_, monotonic_s, options_.boot};
  record(epoch_begun{
      epoch, clock.at_s, id,
      before == id ? ledger_->next_lease() : std::max<lease_id>(ledger_->next_lease(), wall_ms()),
      options_.boot == 0 ? std::nullopt : std::optional{clock}});
  if (before == 0 || before == id) return;
  // An older copy was accepted under a new id: nodes stop all work of the old one, so none of its
  // leases is running, or will be soon.
  std::vector<std::pair<lease_id, std::uint32_t>> parts;
  for (const auto& [lease, l] : ledger_->leases())
    for (std::uint32_t part = 0; part < l.ended.size(); ++part)
      if (!l.ended[part]) parts.emplace_back(lease, part);
  for (const auto& [lease, part] : parts)
    lose_part(lease, part, "the controller continued with an older copy of its journal");
}

bool orchestrator_state::record(const journal_entry& e) {
  auto jobs = jobs_of(e);
  if (auto ok = ledger_->apply(e); !ok) {
    runtime::log(runtime::log_level::error, "orchestrator",
                 "the ledger refuses: " + ok.error().text);
    return false;
  }
  if (const auto* over = std::get_if<job_ended>(&e)) training_.ended(over->job);
  if (const auto* in = std::get_if<job_accepted>(&e)) remember_deadline(*ledger_->job(in->job));
  if (const auto* g = std::get_if<lease_granted>(&e)) remember_limit(*ledger_->lease(g->lease));
  if (const auto* in = std::get_if<job_accepted>(&e)) served_.add(*ledger_->job(in->job));
  for (const auto id : jobs) serving_changed_ = serving_changed_ || served_.has(id);
  batch_.add(e);
  if (std::holds_alternative<training_progress>(e)) return true;  // does not change the ledger
  changed_jobs_.insert(changed_jobs_.end(), jobs.begin(), jobs.end());
  state_has_changed();
  return true;
}

/// The jobs that an entry changes; it has not been applied yet.
std::vector<job_id> orchestrator_state::jobs_of(const journal_entry& e) const {
  const auto holder = [this](lease_id id) -> std::vector<job_id> {
    const auto* l = ledger_->lease(id);
    return l ? std::vector{l->granted.job} : std::vector<job_id>{};
  };
  if (const auto* accepted = std::get_if<job_accepted>(&e)) return {accepted->job};
  if (const auto* granted = std::get_if<lease_granted>(&e)) return {granted->job};
  if (const auto* revoked = std::get_if<lease_revoked>(&e)) return holder(revoked->lease);
  if (const auto* ended = std::get_if<part_ended>(&e)) return holder(ended->lease);
  if (const auto* over = std::get_if<job_ended>(&e)) return {over->job};
  if (const auto* held = std::get_if<job_suspended>(&e)) return {held->job};
  if (const auto* old = std::get_if<jobs_forgotten>(&e)) return old->jobs;
  return {};
}

void orchestrator_state::commit_soon() {
  constexpr std::size_t max_batch = 1000;
  if (serving_changed_) state_serving();
  if (batch_.size() >= max_batch) return on_commit_now();
  if (!batch_.empty() && !std::exchange(commit_asked_, true))
    self_->send(orchestrator_actor{self_}, commit_now{});
}

void orchestrator_state::on_commit_now() {
  commit_asked_ = false;
  if (batch_.empty()) return;
  // Ends this actor, and with it the controller: it must not act on entries that are not durable.
  if (auto ok = batch_.commit(*host_.journal); !ok) throw std::runtime_error(ok.error().text);
}

void orchestrator_state::compact() {
  const auto kept = ledger_->jobs().size() + ledger_->leases().size();
  if (host_.journal->size() < options_.limits.compact_after + 2 * kept) return;
  if (auto old = ledger_->long_ended(options_.limits.keep_ended); !old.jobs.empty()) {
    for (const auto id : old.jobs) training_.forget(id);
    record(old);
  }
  on_commit_now();
  auto entries = ledger_->snapshot();
  for (auto& r : training_.snapshot()) entries.emplace_back(training_progress{std::move(r)});
  const auto before = host_.journal->size();
  if (auto ok = host_.journal->compact(entries); !ok) throw std::runtime_error(ok.error().text);
  runtime::log(runtime::log_level::info, "orchestrator", "compacted the journal",
               {{"entries_before", before}, {"entries", entries.size()}});
}

/// Published once it is durable, together with later changes until then.
void orchestrator_state::state_has_changed() {
  if (!std::exchange(publish_asked_, true)) batch_.when_durable([this] { publish(); });
}

void orchestrator_state::publish() {
  publish_asked_ = false;
  auto jobs = std::exchange(changed_jobs_, {});
  if (subscribers_.empty()) return;
  const auto now = state();
  for (const auto& s : subscribers_) self_->send(s, state_changed{now, jobs});
}

std::shared_ptr<const cluster_state> orchestrator_state::state() {
  if (!published_idle_) published_idle_ = std::make_shared<const planners::idle_index>(*idle_);
  return std::make_shared<const cluster_state>(cluster_state{
      cluster_, *ledger_, nodes_present_, gateways_present_, published_idle_, journal_ahead_s_});
}

void orchestrator_state::reply(address to, message m) {
  batch_.when_durable([this, to, m = std::move(m)] { send_message(host_, to, m); });
}

void orchestrator_state::on_subscribe(const subscribe& m) {
  on_commit_now();  // makes the subscriber's first state durable
  self_->send(m.who, state_changed{state(), {}});
  subscribers_.push_back(m.who);
}

void orchestrator_state::on_begin_scheduling(const begin_scheduling& m) {
  on_subscribe({m.scheduler});
  scheduler_ = m.scheduler;
  for (const auto& [id, j] : ledger_->jobs()) report_progress(id);
}

void orchestrator_state::on_begin_status(const begin_status& m) {
  on_subscribe({m.status});
  status_ = m.status;
  for (const auto& [id, j] : ledger_->jobs()) report_progress(id);
  for (std::uint32_t d = 0; d < gateways_.size(); ++d)
    if (gateways_[d].traffic != gateway_traffic{})
      self_->send(status_, gateway_traffic_changed{d, gateways_[d].traffic});
}

/// Nodes know what the journal has contained. A node that has followed orders of an epoch that is
/// unknown to this journal, though the id is the same, or that has a lease that was never granted,
/// proves that the journal has lost its end.
void orchestrator_state::check_history(node_index n, const node_report& r) const {
  if (r.journal == 0) return;
  const bool known = ledger_->knows_epoch(r.epoch);
  const auto unknown = std::find_if(r.parts.begin(), r.parts.end(), [this](const part_report& p) {
    return p.lease >= ledger_->next_lease();
  });
  if (known && unknown == r.parts.end()) return;
  throw std::runtime_error(fmt::format(
      "node {} has followed orders that this journal does not contain ({} {}): the journal has "
      "lost its latest entries, like an older copy. Restore the newest copy, or start the "
      "controller once with --accept-older-journal to continue without them",
      cluster_->nodes[n].name, known ? "lease" : "epoch", known ? unknown->lease : r.epoch));
}

}  // namespace troupe::actors
