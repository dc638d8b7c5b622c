#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/control/ledger/persistent_map.hpp"
#include "actors/control/ledger/records.hpp"
#include "actors/control/ledger/shared_value.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/wire/client.hpp"
#include "messages/wire/journal.hpp"

namespace troupe::actors {

/// Why an entry contradicts the ledger.
template <class... T>
tl::unexpected<reason> contradiction(fmt::format_string<T...> text, T&&... values) {
  return refuse(reason::kind::invalid, fmt::format(text, std::forward<T>(values)...));
}

/// The record of jobs, leases and GPUs: a pure state machine over journal entries. Replaying a
/// journal reproduces the ledger that wrote it; an entry that contradicts the state is rejected.
class ledger {
 public:
  /// On this cluster until an entry has another.
  explicit ledger(const cluster& c);

  /// Applies one entry. Rejects contradictions and leaves the ledger unchanged: a GPU granted
  /// twice, a part that ends twice, a job that ends again, or is in two unions.
  expected<void> apply(const journal_entry& e);

  /// The present epoch; 0: none has begun.
  std::uint64_t epoch() const { return epochs_->empty() ? 0 : epochs_->back(); }
  /// Did the epoch begin in this journal's history, or before everything that could tell?
  bool knows_epoch(std::uint64_t e) const;
  /// The clocks of the last epoch's controller at its start, if the journal has them.
  const std::optional<clock_reading>& clock() const { return clock_; }
  /// The latest time of any entry; 0: there is none.
  double latest_s() const { return latest_s_; }
  /// The journal's id when the epoch began; 0: no epoch has begun.
  std::uint64_t journal() const { return journal_; }
  job_id next_job() const { return next_job_; }
  lease_id next_lease() const { return next_lease_; }
  const persistent_map<job_id, job_record>& jobs() const { return jobs_; }
  const persistent_map<lease_id, lease_record>& leases() const { return leases_; }
  const job_record* job(job_id id) const { return jobs_.find(id); }
  const lease_record* lease(lease_id id) const { return leases_.find(id); }
  /// The lease that the job runs in: its own, or its union's. Null: it runs in none; its last lease
  /// may be a union's that goes on without it.
  const lease_record* lease_of(const job_record& j) const;
  /// A union's members that have not left it.
  std::vector<const job_record*> members_of(const job_record& of_union) const;
  /// The waiting job whose last lease was this one and was lost; or null.
  const job_record* job_of_lost_lease(lease_id id) const;
  /// The job that a client's request created, or null.
  const job_record* job_of_request(std::uint64_t request) const;

  /// The latest entry with the cluster; null: the journal is of a version without.
  const cluster_changed* roster() const { return *roster_ ? &**roster_ : nullptr; }
  bool is_drained(node_index n) const { return drained_.contains(n); }
  const persistent_map<node_index, node_drained>& drained() const { return drained_; }
  /// Must work on this node stop, because the node was removed, or drained so? Says why.
  std::optional<std::string> must_stop(node_index n) const;

  /// GPUs of a node that no lease holds,
  std::uint32_t free(node_index n) const { return nodes_.at(n).removed ? 0 : nodes_.at(n).idle; }
  /// and those of them that may get work.
  std::uint32_t idle(node_index n) const { return is_drained(n) ? 0 : free(n); }
  /// The lease that holds a GPU, or 0.
  lease_id holder(node_index n, std::uint16_t device) const {
    const auto& all = nodes_.at(n).holders;
    return device < all.size() ? all[device] : 0;
  }
  /// The lease that gets a GPU from its holder, or 0.
  lease_id successor(node_index n, std::uint16_t device) const {
    const auto* next = successors_.find({n, device});
    return next ? *next : 0;
  }
  /// GPUs of a node that this lease holds, and to which no other one succeeds.
  std::uint32_t to_succeed(node_index n, lease_id held) const;
  /// The lowest `count` GPUs of a node that are free, or, first, those of `after`; there must be
  /// enough.
  std::vector<std::uint16_t> take_lowest(node_index n, std::uint32_t count,
                                         std::optional<lease_id> after = {}) const;
  /// The type of a lease's GPUs, by name; empty: they are of several.
  std::string gpu_type_of(const lease_granted& g) const;
  std::size_t unfinished() const { return unfinished_; }

  /// An entry that must follow from the present state: the end of a job whose last lease has ended
  /// finally. Null if none must.
  std::unique_ptr<job_ended> due(job_id id, double now_s) const;

  /// An entry that drops all ended unions, and all ended jobs except the `keep` most recent ones.
  jobs_forgotten long_ended(std::size_t keep) const;

  /// Entries that recreate this ledger from an empty one: the journal's contents after compaction.
  std::vector<journal_entry> snapshot() const;

  /// A job, or a lease, says of itself and of others only what is so: broken invariants end the
  /// process. For entries that this controller has recorded.
  void check_job(const job_record& j) const;
  void check_lease(const lease_record& l) const;
  /// The same of all of them, and of the sums. Takes time with the number of jobs.
  void check_all() const;

  /// Does a training go on without a part that has ended so? One that heals does without any but
  /// its trainer's.
  static bool goes_on_without(const lease_record& l, const part_ended& e);

  bool operator==(const ledger& other) const = default;

 private:
  static constexpr std::size_t max_suspensions = 64;  // remembered requests per job

  void check_history(const job_record& j) const;
  void check_held(const job_record& j, const lease_record& l) const;
  void check_part(const lease_record& l, std::size_t i) const;
  void check_tables() const;
  expected<void> on(const epoch_begun& e);
  expected<void> on(const job_accepted& e);
  expected<void> on(const lease_granted& e);
  expected<void> on(const lease_revoked& e);
  expected<void> on(const part_ended& e);
  expected<void> on(const job_ended& e);
  expected<void> on(const training_progress&) {
    return {};
  }  // does not change GPUs, jobs or leases
  expected<void> on(const jobs_forgotten& e);
  expected<void> on(const snapshot_begun& e);
  expected<void> on(const job_kept& e);
  expected<void> on(const lease_kept& e);
  expected<void> on(const job_suspended& e);
  expected<void> on(const cluster_changed& e);
  expected<void> on(const node_drained& e);
  expected<void> on(const member_ended& e);
  expected<void> on(const program_saved& e);
  expected<void> check_members(const job_accepted& e) const;
  expected<void> check_members_left(lease_id lease, const job_record& j) const;
  expected<void> check_parts(const lease_granted& g) const;
  void hold_parts(const lease_granted& g, const std::vector<bool>& ended);
  void begin_attempt(job_id id, const lease_granted& e);
  static void add_end(lease_record& l, const part_ended& e);
  double gpu_s_until(const lease_record& l, double at_s) const;
  /// The end of an attempt: when, and the GPU time of its job.
  struct attempt_over {
    double at_s = 0, gpu_s = 0;
  };
  void close(lease_record lease, attempt_over at);
  void close_job(job_record j, lease_record l, attempt_over at, std::uint64_t done);
  void close_members(const job_record& of_union, const lease_record& l, attempt_over at);
  static void end_attempt(job_record& j, const lease_record& l, attempt_over at);
  static bool is_repeated(const job_record& j, const lease_record& l);
  static std::string count_end(job_record& j, const lease_record& l, double at_s, bool saved);
  static std::uint64_t done_after(const job_record& j, const lease_record& l);
  static void remember_request(job_record& j, std::uint64_t request);
  void forget_preemption(job_record& j);
  void raise_memory(job_record& j, const lease_granted& g) const;

  struct node_gpus {
    std::vector<lease_id> holders;  // by GPU; 0: none
    std::uint32_t idle = 0;
    double memory_bytes = 0;  // of each
    std::string gpu_type;     // by name
    bool removed = false;

    /// The cluster no longer says how many GPUs a removed node has: those up to the last that a
    /// lease holds are kept, so that a snapshot can bring them back.
    void keep_only_held_if_removed();
    bool operator==(const node_gpus&) const = default;
  };
  void change_holders(const lease_part& part, const std::function<lease_id(std::uint16_t)>& next);

  shared_value<std::vector<std::uint64_t>> epochs_;  // under the present id, ascending
  std::uint64_t journal_ = 0;
  std::optional<clock_reading> clock_;
  double latest_s_ = 0;
  job_id next_job_ = 1;
  lease_id next_lease_ = 1;
  persistent_map<job_id, job_record> jobs_;
  persistent_map<lease_id, lease_record> leases_;
  persistent_map<std::uint64_t, job_id> requests_;
  persistent_map<lease_id, job_id> lost_;  // leases of jobs that have been waiting since
  persistent_map<job_id, lease_outcome>
      closed_;  // jobs whose last lease ended finally, awaiting job_ended
  persistent_map<node_index, node_gpus> nodes_;
  // The lease that follows its GPU's holder: at most one for each GPU.
  persistent_map<std::pair<node_index, std::uint16_t>, lease_id> successors_;
  persistent_map<node_index, node_drained> drained_;
  shared_value<std::optional<cluster_changed>> roster_;
  std::size_t unfinished_ = 0;
};

}  // namespace troupe::actors
