#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/end.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/job_progress.hpp"
#include "messages/domain/job_union.hpp"
#include "messages/domain/plan.hpp"
#include "messages/wire/client.hpp"
#include "messages/wire/large_variant.hpp"
#include "messages/wire/stage.hpp"

// The controller's journal contains entries in the same encoding as messages: `[4, kind, entry]`,
// before version 4 `[kind, entry]`. In order, they yield the ledger. They are never sent.

namespace troupe {

/// A moment on a controller's clocks.
struct clock_reading {
  double at_s = 0;         // the journal's time
  double monotonic_s = 0;  // since the machine's start
  std::uint64_t boot = 0;  // which start of the machine that was

  TROUPE_FIELDS(clock_reading, at_s, monotonic_s, boot);
};

/// A controller's start.
struct epoch_begun {
  std::uint64_t epoch = 0;
  double at_s = 0;
  std::uint64_t journal = 0;             // the journal's id
  lease_id first_lease = 0;              // leases of this epoch are numbered from here
  std::optional<clock_reading> clock{};  // of the controller's host
  static constexpr std::size_t required = 2;

  TROUPE_FIELDS(epoch_begun, epoch, at_s, journal, first_lease, clock);
};

/// A job was submitted and admitted, or the controller makes a union of waiting jobs.
struct job_accepted {
  job_id job = 0;
  std::uint64_t request = 0;  // the client's, by which a repeated submission finds the same job
  double at_s = 0;
  job_spec spec;
  std::string owner;                   // the name of the key that submitted it
  std::optional<job_union> members{};  // of a union; it has no owner and no request
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(job_accepted, job, request, at_s, spec, owner, members);
};

/// The job holds these GPUs from here on.
struct lease_granted {
  lease_id lease = 0;
  job_id job = 0;
  double at_s = 0;
  plan how;
  double predicted_bytes = 0;  // per GPU
  double iteration_s = 0;      // expected
  double start_s = 0;          // simulated work: what starting costs
  bool out_of_memory = false;  // simulated work: it will run out of memory
  std::vector<lease_part> parts;
  std::optional<std::uint16_t> port{};  // of a program: its MASTER_PORT, on the first part's node
  /// The lease whose GPUs these are, as far as they are not free; each passes from it to this one
  /// when its part there ends.
  std::optional<lease_id> after{};
  /// It goes on without a part that is lost, but for its trainer's: its stages have peers. None:
  /// no.
  std::optional<bool> heals{};
  static constexpr std::size_t required = 9;

  TROUPE_FIELDS(lease_granted, lease, job, at_s, how, predicted_bytes, iteration_s, start_s,
                out_of_memory, parts, port, after, heals);
};

inline bool heals(const lease_granted& g) {
  return g.heals.value_or(false);
}

/// Why a lease is revoked or has ended.
enum class lease_outcome : std::uint8_t {
  succeeded,
  failed,
  out_of_memory,
  preempted,
  cancelled,
  lost
};

constexpr const char* to_string(lease_outcome o) {
  constexpr const char* names[] = {"succeeded", "failed",    "out of memory",
                                   "preempted", "cancelled", "lost"};
  return names[static_cast<std::size_t>(o)];
}

/// Did the work itself fail, rather than being stopped or losing its node?
constexpr bool is_failure(lease_outcome o) {
  return o == lease_outcome::failed || o == lease_outcome::out_of_memory;
}

/// The lease must end; its GPUs are free once each part is known to have ended.
struct lease_revoked {
  lease_id lease = 0;
  double at_s = 0;
  lease_outcome why = lease_outcome::preempted;
  std::string detail;
  double grace_s = 0;                      // time to save before it is killed
  std::optional<std::uint32_t> part{};     // the one that is the reason
  std::optional<std::uint64_t> request{};  // the client's, of the `requeue_job` that is the reason
  std::optional<end_word> word{};          // none: what `why` implies
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(lease_revoked, lease, at_s, why, detail, grace_s, part, request, word);
};

/// The last report of a program, as far as it matters afterwards.
struct program_end {
  /// Iterations from the job's beginning; the next attempt goes on there.
  std::optional<std::uint64_t> saved{};
  bool finished = false;  // the job is done if all parts ended with status 0
  // For elastic programs: from the grant to its first iteration, without that iteration, and the
  // time of an iteration; none: not measured.
  std::optional<double> start_s{}, step_s{};
  std::optional<std::uint64_t> reached{};  // the last iteration that it has completed
  static constexpr std::size_t required = 2;

  TROUPE_FIELDS(program_end, saved, finished, start_s, step_s, reached);
};

/// A part has ended; its GPUs are free. `iterations`: those of the part.
struct part_ended {
  lease_id lease = 0;
  std::uint32_t part = 0;  // index into the lease's `parts`
  double at_s = 0;
  lease_outcome outcome = lease_outcome::succeeded;
  std::uint64_t iterations = 0;  // that the part had done
  double peak_bytes = 0;         // per GPU; 0: unknown
  std::string detail;
  std::optional<std::int32_t> exit_code{};  // of its command; 128 + n for a signal n
  std::optional<program_end> program{};     // of a program that has reported something of it
  std::optional<end_word> word{};           // none: what `outcome` implies
  std::optional<std::uint32_t> rank{};      // the program's rank that failed, as its launcher says
  static constexpr std::size_t required = 7;

  TROUPE_FIELDS(part_ended, lease, part, at_s, outcome, iterations, peak_bytes, detail, exit_code,
                program, word, rank);
};

/// A member leaves its union, which goes on without it.
struct member_ended {
  job_id job = 0;  // the member
  double at_s = 0;
  /// succeeded, failed and cancelled end the job; others put it back into the queue.
  lease_outcome outcome = lease_outcome::succeeded;
  std::uint64_t iterations = 0;  // that it has done in the union
  std::string detail;
  std::optional<end_word> word{};  // none: what `outcome` implies
  static constexpr std::size_t required = 5;

  TROUPE_FIELDS(member_ended, job, at_s, outcome, iterations, detail, word);
};

/// The job has ended. At most one per job.
struct job_ended {
  job_id job = 0;
  double at_s = 0;
  job_state final_state = job_state::finished;
  std::string detail;
  std::optional<end_word> word{};  // none: that of its last attempt
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(job_ended, job, at_s, final_state, detail, word);
};

/// A trainer has reported iterations, a checkpoint or an event. Per-stage measurements are left
/// out.
struct training_progress {
  training_report report;

  TROUPE_FIELDS(training_progress, report);
};

/// These jobs ended long ago; nothing about them is kept.
struct jobs_forgotten {
  std::vector<job_id> jobs;

  TROUPE_FIELDS(jobs_forgotten, jobs);
};

/// The first entry of a compacted journal, and of no other place. The entries after it replace all
/// deleted ones: a `job_kept` for each job, a `lease_kept` for each lease that still held GPUs, a
/// `training_progress` for each training.
struct snapshot_begun {
  std::vector<std::uint64_t> epochs;  // that began under the journal's present id, ascending
  std::uint64_t journal = 0;          // the id that the journal had in the last epoch
  job_id next_job = 1;
  lease_id next_lease = 1;
  std::optional<clock_reading> clock{};  // of the last epoch
  std::optional<double> latest_s{};      // the latest time of all entries before
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(snapshot_begun, epochs, journal, next_job, next_lease, clock, latest_s);
};

/// A present or past lease of a job, and its nodes by rank: where its logs are.
struct attempt_record {
  lease_id lease = 0;
  std::vector<node_index> nodes;     // by rank; each has a log of it
  std::optional<attempt_end> end{};  // none: it has not ended, or ended before 0.4
  static constexpr std::size_t required = 2;

  TROUPE_FIELDS(attempt_record, lease, nodes, end);
};

/// A job at the time of the snapshot.
struct job_kept {
  job_id job = 0;
  std::uint64_t request = 0;  // the client's
  std::string owner;          // the name of the key that submitted it
  job_spec spec;
  std::optional<job_union> members{};  // of a union
  std::optional<job_id> in{};          // the union that it runs in

  job_state state = job_state::waiting;
  double submitted_s = 0, started_s = 0, ended_s = 0;
  bool suspended = false;
  std::vector<std::uint64_t> suspensions;  // the latest requests to suspend, resume or requeue it
  std::optional<double> not_before_s{};    // it is not started before this time; none: at once

  // Its attempts so far.
  job_progress progress;
  memory_history history;
  std::vector<memory_record> memory;
  std::vector<attempt_record> tries;        // every attempt, the first one first
  std::optional<elastic_record> elastic{};  // of an elastic program

  // Its present attempt, or the last one.
  lease_id lease = 0;
  plan how;
  allocation where;
  double predicted_bytes = 0, peak_bytes = 0;
  std::string detail;
  std::optional<end_word> word{};  // why it, or the job, has ended
  /// It ended finally, but job_ended is not recorded yet.
  std::optional<lease_outcome> closed{};
  std::vector<lease_part> lost_parts;          // if it was lost and the job waits
  std::vector<std::uint32_t> lost_succeeded;   // indices of those that had succeeded
  std::optional<std::int32_t> exit_code{};     // of the last command that ended
  std::optional<std::uint32_t> failed_rank{};  // a program's first part that failed

  TROUPE_FIELDS(job_kept, job, request, owner, spec, members, in, state, submitted_s, started_s,
                ended_s, suspended, suspensions, not_before_s, progress, history, memory, tries,
                elastic, lease, how, where, predicted_bytes, peak_bytes, detail, word, closed,
                lost_parts, lost_succeeded, exit_code, failed_rank);

  /// The fields in the order of journals of versions 1 to 3.
  template <class FieldTies = troupe::field_ties>
  auto fields_3() {
    return FieldTies::of(
        job, request, spec, state, submitted_s, started_s, ended_s, progress.attempts,
        history.out_of_memory, history.factor, history.bytes_floor, progress.iterations_done, lease,
        how, where, predicted_bytes, peak_bytes, memory, detail, closed, owner, progress.losses,
        lost_parts, lost_succeeded, exit_code, tries, suspended, suspensions, history.tried_gpus,
        history.tried_bytes, failed_rank, progress.ran_s, members, in, history.alone, elastic, word,
        progress.retried, not_before_s);
  }
  static constexpr std::size_t required_3 = 26;
};

/// A lease that holds GPUs, at the time of the snapshot.
struct lease_kept {
  lease_granted granted;
  bool revoked = false;
  lease_outcome outcome = lease_outcome::succeeded;  // so far
  std::string detail;
  std::vector<std::uint32_t> ended;  // indices of ended parts
  std::uint64_t iterations = 0;      // the least of any part that has ended
  double peak_bytes = 0;
  std::vector<std::uint32_t> succeeded;        // indices of successful parts
  std::optional<std::int32_t> exit_code;       // the first nonzero one, if there is any
  std::optional<std::uint32_t> failed_part{};  // the first that failed
  std::optional<program_end> program{};        // of all parts that have ended; the least is saved
  /// Parts that ended with exit status 0; none: no part has.
  std::optional<std::vector<std::uint32_t>> ended_with_zero{};
  std::optional<double> grace_s{};       // of its revocation; none: 0
  std::optional<double> revoked_s{};     // when it was first revoked; none: it was not
  std::optional<std::uint64_t> saved{};  // as its program has reported while it ran
  std::optional<end_word> word{};        // so far; none: what `outcome` implies
  std::optional<std::uint32_t> rank{};   // the program's rank that failed
  static constexpr std::size_t required = 9;

  TROUPE_FIELDS(lease_kept, granted, revoked, outcome, detail, ended, iterations, peak_bytes,
                succeeded, exit_code, failed_part, program, ended_with_zero, grace_s, revoked_s,
                saved, word, rank);
};

/// The job is suspended and gets no GPUs from now on, or is resumed.
struct job_suspended {
  job_id job = 0;
  double at_s = 0;
  bool suspended = true;
  std::string by;             // name of the key that requested it
  std::uint64_t request = 0;  // the request's number, which identifies repetitions

  TROUPE_FIELDS(job_suspended, job, at_s, suspended, by, request);
};

/// The cluster from here on: nodes, datacenters, GPU types and fronts have the same indices as in
/// the entry before, and new ones follow. Every index in other entries is one in it.
struct cluster_changed {
  troupe::cluster cluster;
  double at_s = 0;
  // The longest lease that a node may still have: lease_s, or that of an earlier version.
  double longest_lease_s = 0;
  /// XXH64, seed 0, of the cluster as loaded at the controller's last start, packed by these
  /// rules.
  std::uint64_t file = 0;

  TROUPE_FIELDS(cluster_changed, cluster, at_s, longest_lease_s, file);
};

/// The node gets no new work from now on, or gets it again.
struct node_drained {
  node_index node = 0;  // index in the cluster
  double at_s = 0;
  bool drained = true;  // false: it gets work again
  bool stop = false;    // work that runs there is stopped
  std::string by;       // name of the key that requested it

  TROUPE_FIELDS(node_drained, node, at_s, drained, stop, by);
};

/// A running program has reported that it has saved: the next attempt goes on there, unless a later
/// entry of the lease says otherwise.
struct program_saved {
  lease_id lease = 0;
  std::uint64_t saved = 0;  // iterations from the job's beginning

  TROUPE_FIELDS(program_saved, lease, saved);
};

/// In the order of the wire: new entries are added at the end.
using any_journal_entry =
    std::variant<epoch_begun, job_accepted, lease_granted, lease_revoked, part_ended, job_ended,
                 training_progress, jobs_forgotten, snapshot_begun, job_kept, lease_kept,
                 job_suspended, cluster_changed, node_drained, member_ended, program_saved>;
using journal_entry = large_variant<any_journal_entry>;

/// The version of entries that are written. Those of 1 to 3 are read (fields_3).
inline constexpr std::uint8_t journal_version = 4;

}  // namespace troupe
