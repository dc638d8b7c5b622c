#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "actors/control/orchestrator.hpp"
#include "actors/protocol/post.hpp"
#include "runtime/host/log.hpp"

// How the orchestrator writes down what it does, and acts on it when that is durable.

namespace troupe::actors {

void orchestrator_state::begin_epoch() {
  const auto before = ledger_->journal(), id = host_.journal->id();
  // Epochs are taken from the wall clock, so that those of two histories of one journal (the disk
  // was put back to an older state) differ: see check_history. So are the leases of a new journal,
  // because their numbers are fencing tokens: they must not come again.
  const auto epoch = std::max(ledger_->epoch() + 1, wall_ms());
  record(epoch_begun{
      epoch, wall(), id,
      before == id ? ledger_->next_lease() : std::max<lease_id>(ledger_->next_lease(), wall_ms())});
  if (before == 0 || before == id) return;
  // An older copy was accepted under a new id: nodes stop all work of the old one, so no lease of
  // it is running any more, or will be soon.
  std::vector<std::pair<lease_id, std::uint32_t>> parts;
  for (const auto& [lease, l] : ledger_->leases())
    for (std::uint32_t part = 0; part < l.ended.size(); ++part)
      if (!l.ended[part]) parts.emplace_back(lease, part);
  for (const auto& [lease, part] : parts)
    lose_part(lease, part, "the controller continued with an older copy of its journal");
}

bool orchestrator_state::record(const journal_entry& e) {
  if (auto ok = ledger_->apply(e); !ok) {
    runtime::log(runtime::log_level::error, "orchestrator",
                 "the ledger refuses: " + ok.error().text);
    return false;
  }
  if (const auto* over = std::get_if<job_ended>(&e)) training_.ended(over->job);
  if (const auto* in = std::get_if<job_accepted>(&e)) remember_deadline(*ledger_->job(in->job));
  auto shared = std::make_shared<const journal_entry>(e);
  batch_.add(e);
  batch_.when_durable([this, shared = std::move(shared)] { publish(shared); });
  return true;
}

void orchestrator_state::handled() {
  constexpr std::size_t most = 1000;
  if (batch_.size() >= most) return commit_batched();
  if (!batch_.empty() && !std::exchange(commit_asked_, true))
    self_->send(orchestrator_actor{self_}, commit_now{});
}

void orchestrator_state::commit_batched() {
  commit_asked_ = false;
  if (batch_.empty()) return;
  // Ends this actor, and with it the controller: what is not written down must not be acted on.
  if (auto ok = batch_.commit(*host_.journal); !ok) throw std::runtime_error(ok.error().text);
}

void orchestrator_state::compact() {
  const auto kept = ledger_->jobs().size() + ledger_->leases().size();
  if (host_.journal->size() < options_.limits.compact_after + 2 * kept) return;
  if (auto old = ledger_->long_ended(options_.limits.keep_ended); !old.jobs.empty()) {
    for (const auto id : old.jobs) training_.forget(id);
    record(old);
  }
  commit_batched();
  auto entries = ledger_->snapshot();
  for (auto& r : training_.snapshot()) entries.emplace_back(training_told{std::move(r)});
  const auto before = host_.journal->size();
  if (auto ok = host_.journal->compact(entries); !ok) throw std::runtime_error(ok.error().text);
  runtime::log(runtime::log_level::info, "orchestrator", "compacted the journal",
               {{"entries_before", before}, {"entries", entries.size()}});
}

void orchestrator_state::publish(const std::shared_ptr<const journal_entry>& e) {
  if (scheduler_) self_->send(scheduler_, ledger_event{e});
  if (options_.on_entry) options_.on_entry(*e);
}

void orchestrator_state::reply(address to, message m) {
  batch_.when_durable([this, to, m = std::move(m)] { post(host_, to, m); });
}

void orchestrator_state::tell_scheduler(presence p) {
  batch_.when_durable([this, p] {
    if (scheduler_) self_->send(scheduler_, p);
  });
}

void orchestrator_state::show(const scheduler_actor& s) {
  commit_batched();  // the ledger that it is shown is durable
  scheduler_ = s;
  for (node_index n = 0; n < nodes_.size(); ++n)
    if (nodes_[n].present)
      self_->send(scheduler_, presence{node_address(*options_.cluster, n), true});
  self_->send(scheduler_, ledger_state{std::make_shared<const ledger>(*ledger_)});
  for (const auto& [id, j] : ledger_->jobs()) report_progress(id);
}

/// Nodes are witnesses of what the journal has held. One that has followed orders of an epoch that
/// this journal does not know, though it is this journal's, or has a lease that was never granted,
/// knows that the journal's end was lost.
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
      options_.cluster->nodes[n].name, known ? "lease" : "epoch",
      known ? unknown->lease : r.epoch));
}

}  // namespace troupe::actors
