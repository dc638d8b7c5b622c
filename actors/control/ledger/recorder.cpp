#include "actors/control/ledger/recorder.hpp"

#include <algorithm>
#include <stdexcept>

#include "actors/control/ledger/journal_time.hpp"
#include "actors/protocol/messenger.hpp"
#include "messages/base/invariant.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

namespace {

constexpr double clock_rounding_s = 1e-3;  // of times since 1970, which are sums of two clocks

/// None: the entry is of no moment.
std::optional<double> time_of(const journal_entry& e) {
  return std::visit(
      [](const auto& entry) -> std::optional<double> {
        if constexpr (requires { entry.at_s; })
          return entry.at_s;
        else
          return {};
      },
      e);
}

}  // namespace

recorder::recorder(runtime::host h, const cluster& file, std::uint64_t boot)
    : host_{std::move(h)}, boot_{boot}, ledger_{file} {
  auto replayed = host_.journal->replay([this](const journal_entry& e) {
    if (auto ok = ledger_.apply(e); !ok)
      throw std::runtime_error("the journal contradicts itself: " + ok.error().text);
    if (const auto* progress = std::get_if<training_progress>(&e)) training_.add(progress->report);
    if (const auto* over = std::get_if<job_ended>(&e)) training_.ended(over->job);
  });
  if (!replayed) throw std::runtime_error(replayed.error().text);
  // Before anything is recorded: every entry has a time of the journal, the cluster's too.
  const clock_reading clock{host_.clock->wall_s(), now(), boot_};
  ahead_s_ = journal_time(clock, ledger_.clock(), ledger_.latest_s()) - clock.monotonic_s;
}

std::uint64_t recorder::wall_ms() const {
  return static_cast<std::uint64_t>(std::max(0.0, host_.clock->wall_s()) * 1000);
}

bool recorder::begin_epoch() {
  const auto before = ledger_.journal(), id = host_.journal->id();
  // Epochs are derived from the wall clock, so that they differ between two histories of one
  // journal (after a restored disk): see host_reports::check_history. So are the leases of a new
  // journal, since their numbers are fencing tokens and must not repeat.
  const auto epoch = std::max(ledger_.epoch() + 1, wall_ms());
  const auto monotonic_s = now();
  const clock_reading clock{monotonic_s + ahead_s_, monotonic_s, boot_};
  const bool begun = record(epoch_begun{
      epoch, clock.at_s, id,
      before == id ? ledger_.next_lease() : std::max<lease_id>(ledger_.next_lease(), wall_ms()),
      boot_ == 0 ? std::nullopt : std::optional{clock}});
  TROUPE_INVARIANT(begun && ledger_.epoch() == epoch, "an epoch that begins is the ledger's");
  TROUPE_INVARIANT(ledger_.journal() == id, "an epoch begins under the journal's own id");
  return before != 0 && before != id;
}

bool recorder::record(const journal_entry& e) {
  // Before it is applied: the ledger forgets a lease with its last part, and whose it was.
  auto jobs = jobs_of(e);
  const double latest_s = ledger_.latest_s();
  if (auto ok = ledger_.apply(e); !ok) {
    // The caller has checked what it records, so this is a bug or a disagreement of two checks. The
    // ledger is unchanged, which is safe: whatever was wanted does not happen.
    runtime::log(runtime::log_level::error, "orchestrator",
                 "the ledger refuses: " + ok.error().text);
    return false;
  }
  // An empty journal begins at whatever the wall clock shows, before 1970 too.
  TROUPE_INVARIANT(latest_s <= 0 || time_of(e).value_or(latest_s) > latest_s - clock_rounding_s,
                   "the times of the journal's entries do not fall");
  check_change(e, jobs);
  if (const auto* over = std::get_if<job_ended>(&e)) training_.ended(over->job);
  entries_.push_back(e);
  listener_.on_recorded(e, jobs);
  if (std::holds_alternative<training_progress>(e)) return true;  // does not change the ledger
  changed_jobs_.insert(changed_jobs_.end(), jobs.begin(), jobs.end());
  note_change();
  return true;
}

/// After it was applied, and before anything follows from it.
void recorder::check_change(const journal_entry& e, const std::vector<job_id>& jobs) const {
  for (const auto id : jobs)
    if (const auto* j = ledger_.job(id)) {
      ledger_.check_job(*j);
      if (const auto* held = ledger_.lease_of(*j); held && !j->in) ledger_.check_lease(*held);
    }
  if (const auto* g = std::get_if<lease_granted>(&e)) {
    TROUPE_INVARIANT(ledger_.lease(g->lease), "a lease that was granted is held");
    TROUPE_INVARIANT(ledger_.next_lease() == g->lease + 1, "no number is given to two leases");
  }
  if (checks_slow_invariants()) ledger_.check_all();
}

/// The jobs that an entry changes; it has not been applied yet. A change of a union is one of its
/// members.
std::vector<job_id> recorder::jobs_of(const journal_entry& e) const {
  const auto with_members = [this](job_id id) {
    std::vector all{id};
    if (const auto* j = ledger_.job(id); j && j->members)
      all.insert(all.end(), j->members->jobs.begin(), j->members->jobs.end());
    return all;
  };
  // So is one of a lease that follows another one, for that one's job.
  const auto with_former = [&](const lease_granted& g) {
    auto all = with_members(g.job);
    if (const auto* before = g.after ? ledger_.lease(*g.after) : nullptr)
      all.push_back(before->granted.job);
    return all;
  };
  const auto holder = [&](lease_id id) -> std::vector<job_id> {
    const auto* l = ledger_.lease(id);
    return l ? with_former(l->granted) : std::vector<job_id>{};
  };
  if (const auto* accepted = std::get_if<job_accepted>(&e)) return {accepted->job};
  if (const auto* granted = std::get_if<lease_granted>(&e)) return with_former(*granted);
  if (const auto* revoked = std::get_if<lease_revoked>(&e)) return holder(revoked->lease);
  if (const auto* ended = std::get_if<part_ended>(&e)) return holder(ended->lease);
  if (const auto* over = std::get_if<job_ended>(&e)) return {over->job};
  if (const auto* left = std::get_if<member_ended>(&e)) return {left->job};
  if (const auto* held = std::get_if<job_suspended>(&e)) return {held->job};
  if (const auto* old = std::get_if<jobs_forgotten>(&e)) return old->jobs;
  return {};
}

/// Published once it is durable, together with later changes until then.
void recorder::note_change() {
  if (std::exchange(publish_asked_, true)) return;
  when_durable([this] {
    TROUPE_INVARIANT(entries_.empty(), "no subscriber sees a state that a crash could undo");
    publish_asked_ = false;
    listener_.publish(std::exchange(changed_jobs_, {}));
  });
}

/// Journal before act: the receiver must not know what a crash would undo.
void recorder::reply(address to, message m) {
  when_durable([this, to, m = std::move(m)] { send_message(host_, to, m); });
}

void recorder::commit() {
  if (entries_.empty()) return;
  const auto before = host_.journal->size();
  if (auto ok = host_.journal->append(entries_); !ok) throw std::runtime_error(ok.error().text);
  TROUPE_INVARIANT(host_.journal->size() == before + entries_.size(),
                   "a journal grows by the entries that were appended");
  entries_.clear();
  for (const auto& act : std::exchange(actions_, {})) act();
}

void recorder::record_first_cluster(const cluster_changed& first) {
  // Entries of an earlier version name nodes by their place in this file. A snapshot that begins
  // with the cluster makes them independent of it.
  const bool is_new = host_.journal->size() == 0;
  if (auto ok = ledger_.apply(first); !ok) throw std::runtime_error(ok.error().text);
  if (is_new)
    entries_.push_back(first);
  else
    rewrite_journal();
}

void recorder::follow_cluster() {
  TROUPE_INVARIANT(ledger_.roster(), "the journal has the cluster before hosts follow it");
  TROUPE_INVARIANT(!cluster_ || cluster_->nodes.size() <= ledger_.roster()->cluster.nodes.size(),
                   "nodes keep their places in the next cluster");
  cluster_ = std::make_shared<const cluster>(ledger_.roster()->cluster);
}

namespace {

/// A controller that starts with the snapshot knows what this one does.
void check_snapshot(const ledger& book, const std::vector<journal_entry>& snapshot) {
  ledger again{cluster{}};
  for (const auto& e : snapshot)
    TROUPE_INVARIANT(again.apply(e), "a snapshot does not contradict itself");
  TROUPE_INVARIANT(again == book, "a snapshot is the ledger that it was made of");
}

}  // namespace

/// Returns the number of entries that it has now.
/// The journal replaces its contents in one transaction, so a crash leaves either the old entries
/// or the new ones.
std::size_t recorder::rewrite_journal() {
  TROUPE_INVARIANT(entries_.empty(), "a snapshot is written when all that it has is durable");
  auto entries = ledger_.snapshot();
  if (checks_slow_invariants()) check_snapshot(ledger_, entries);
  for (auto& r : training_.snapshot()) entries.emplace_back(training_progress{std::move(r)});
  if (auto ok = host_.journal->compact(entries); !ok) throw std::runtime_error(ok.error().text);
  TROUPE_INVARIANT(host_.journal->size() == entries.size(),
                   "a compacted journal has the snapshot alone");
  return entries.size();
}

void recorder::compact(std::uint64_t compact_after, std::size_t keep_ended) {
  // A snapshot has about one entry for each job and lease. Waiting until the journal is twice as
  // long makes the cost of compaction constant for each entry that is ever written.
  const auto kept = ledger_.jobs().size() + ledger_.leases().size();
  const auto before = host_.journal->size();
  if (before < compact_after + 2 * kept) return;
  if (auto old = ledger_.long_ended(keep_ended); !old.jobs.empty()) {
    for (const auto id : old.jobs) training_.forget(id);
    record(old);
  }
  commit();  // the snapshot contains what was recorded, so it must not follow it once more
  const auto written = host_.journal->size();
  const auto entries = rewrite_journal();
  runtime::log(runtime::log_level::debug, "orchestrator", "compacted the journal",
               {{"entries_before", written}, {"entries", entries}});
}

}  // namespace troupe::actors
