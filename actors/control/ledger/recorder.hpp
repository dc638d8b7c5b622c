#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "actors/control/ledger/ledger.hpp"
#include "actors/control/ledger/training_history.hpp"
#include "messages/base/invariant.hpp"
#include "messages/wire/message.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// The journal, and what is a function of it: the ledger, the cluster, the trainings' histories.
/// Everything that the controller changes goes through record():
///
///     record(entry) -> ledger -> batch ---- commit() ----> journal
///                                  |                         | durable
///                                  +-- actions, held back ---+--> replies, orders, states
///
/// An entry counts for the controller's own decisions at once, so that many can be decided within
/// one batch (group commit). Others learn of it only when it is durable: a controller that crashes
/// before that has promised nothing, and one that crashes after it finds the entry in the journal.
class recorder {
 public:
  /// Replays the journal. Throws if that fails or contradicts itself. `file`: the cluster of the
  /// entries until one has another. `boot`: which start of the machine the monotonic clock counts
  /// from; 0: unknown.
  recorder(runtime::host h, const cluster& file, std::uint64_t boot);

  struct listener {
    /// An entry was applied; `jobs`: those that it has changed.
    std::function<void(const journal_entry& e, const std::vector<job_id>& jobs)> on_recorded;
    /// Everything is durable that has changed so far; `jobs`: those since the last call.
    std::function<void(const std::vector<job_id>& jobs)> publish;
  };
  void listen(listener l) { listener_ = std::move(l); }

  const ledger& book() const { return ledger_; }
  training_history& trainings() { return training_; }
  /// The ledger's cluster, which others may not have received yet.
  const cluster& present_cluster() const { return *cluster_; }
  std::shared_ptr<const cluster> shared_cluster() const { return cluster_; }

  /// False: the ledger refuses the entry, and nothing has changed.
  bool record(const journal_entry& e);
  /// A host has come or gone, which is published like a recorded change.
  void note_change();
  /// The first cluster of this journal.
  void record_first_cluster(const cluster_changed& first);
  /// From now on present_cluster() is what the ledger has.
  void follow_cluster();
  /// True: the journal is an older copy that was accepted under a new id.
  bool begin_epoch();

  /// Runs `act` once all that is recorded by now is durable, in order; now, if it is already.
  template <class F>
  void when_durable(F&& act) {
    TROUPE_INVARIANT(!entries_.empty() || actions_.empty(),
                     "nothing is held back once all is durable");
    if (entries_.empty())
      act();
    else
      actions_.emplace_back(std::forward<F>(act));
  }
  void reply(address to, message m);

  std::size_t uncommitted() const { return entries_.size(); }
  /// Throws if the journal fails, which ends the controller: it must not act on entries that are
  /// not durable, and after a failed append it does not know which of them are.
  void commit();
  /// Replaces the journal by a snapshot once it is more than `compact_after` entries longer than
  /// twice that, and forgets all but the `keep_ended` newest of the ended jobs.
  void compact(std::uint64_t compact_after, std::size_t keep_ended);

  const runtime::host& host() const { return host_; }
  double now() const { return host_.clock->now_s(); }
  double wall() const { return now() + ahead_s_; }  // the journal's time
  double ahead_s() const { return ahead_s_; }
  std::uint64_t wall_ms() const;  // of the wall clock

 private:
  void check_change(const journal_entry& e, const std::vector<job_id>& jobs) const;
  std::vector<job_id> jobs_of(const journal_entry& e) const;
  std::size_t rewrite_journal();

  runtime::host host_;
  std::uint64_t boot_ = 0;
  ledger ledger_;
  training_history training_;
  std::shared_ptr<const cluster> cluster_;
  double ahead_s_ = 0;  // the journal's time, less the monotonic clock
  // Group commit: entries that are not durable yet, and what is done once they are.
  std::vector<journal_entry> entries_;
  std::vector<std::function<void()>> actions_;
  listener listener_;
  std::vector<job_id> changed_jobs_;  // since the state was published
  bool publish_asked_ = false;
};

}  // namespace troupe::actors
