#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "messages/client.hpp"
#include "messages/job.hpp"
#include "messages/plan.hpp"
#include "messages/stage.hpp"
#include "messages/units.hpp"

// What the controller writes down before it acts. Replayed in order, the entries are the ledger.

namespace troupe {

/// A controller took charge of the journal.
struct epoch_begun {
  std::uint64_t epoch = 0;
  double at_s = 0;
  std::uint64_t journal = 0;  // the journal's id
  lease_id first_lease = 0;   // leases of this epoch have this number or a larger one
  static constexpr std::size_t required = 2;

  static constexpr auto fields() {
    using t = epoch_begun;
    return std::tuple{&t::epoch, &t::at_s, &t::journal, &t::first_lease};
  }
  bool operator==(const epoch_begun&) const = default;
};

struct job_accepted {
  job_id job = 0;
  std::uint64_t request = 0;  // the client's, so that a repeated submission finds the same job
  double at_s = 0;
  job_spec spec;
  std::string owner;  // the name of the key that submitted it
  static constexpr std::size_t required = 4;

  static constexpr auto fields() {
    using t = job_accepted;
    return std::tuple{&t::job, &t::request, &t::at_s, &t::spec, &t::owner};
  }
  bool operator==(const job_accepted&) const = default;
};

/// The job holds these GPUs from now on.
struct lease_granted {
  lease_id lease = 0;
  job_id job = 0;
  double at_s = 0;
  plan how;
  double predicted_bytes = 0;
  double iteration_s = 0;      // expected
  double start_s = 0;          // simulated work: what starting costs
  bool out_of_memory = false;  // simulated work: will not fit
  std::vector<lease_part> parts;

  static constexpr auto fields() {
    using t = lease_granted;
    return std::tuple{
        &t::lease,       &t::job,     &t::at_s,          &t::how,  &t::predicted_bytes,
        &t::iteration_s, &t::start_s, &t::out_of_memory, &t::parts};
  }
  bool operator==(const lease_granted&) const = default;
};

/// Why a lease is to end, or ended.
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

/// Nothing of this lease may go on; its GPUs are free once each part is known to be gone.
struct lease_revoked {
  lease_id lease = 0;
  double at_s = 0;
  lease_outcome why = lease_outcome::preempted;
  std::string detail;
  double grace_s = 0;  // a training may take so long to finish its iteration and save; then killed
  static constexpr std::size_t required = 4;

  static constexpr auto fields() {
    using t = lease_revoked;
    return std::tuple{&t::lease, &t::at_s, &t::why, &t::detail, &t::grace_s};
  }
  bool operator==(const lease_revoked&) const = default;
};

/// One part is gone; its GPUs are free. `iterations` is what the part had done.
struct part_ended {
  lease_id lease = 0;
  std::uint32_t part = 0;
  double at_s = 0;
  lease_outcome outcome = lease_outcome::succeeded;
  std::uint64_t iterations = 0;
  double peak_bytes = 0;
  std::string detail;
  std::optional<std::int32_t> exit_code{};  // of its command; 128 + n for a signal n
  static constexpr std::size_t required = 7;

  static constexpr auto fields() {
    using t = part_ended;
    return std::tuple{&t::lease,      &t::part,       &t::at_s,   &t::outcome,
                      &t::iterations, &t::peak_bytes, &t::detail, &t::exit_code};
  }
  bool operator==(const part_ended&) const = default;
};

/// The job has come to its end. Never written twice for a job.
struct job_ended {
  job_id job = 0;
  double at_s = 0;
  job_state final_state = job_state::finished;
  std::string detail;

  static constexpr auto fields() {
    using t = job_ended;
    return std::tuple{&t::job, &t::at_s, &t::final_state, &t::detail};
  }
  bool operator==(const job_ended&) const = default;
};

/// A trainer has told of iterations that are done, of a checkpoint, or of something for people.
struct training_told {
  training_report report;

  static constexpr auto fields() { return std::tuple{&training_told::report}; }
  bool operator==(const training_told&) const = default;
};

/// These jobs ended so long ago that nothing is kept of them.
struct jobs_forgotten {
  std::vector<job_id> jobs;

  static constexpr auto fields() { return std::tuple{&jobs_forgotten::jobs}; }
  bool operator==(const jobs_forgotten&) const = default;
};

// A snapshot stands for all entries before it, which are deleted when it is written: one
// snapshot_begun, then a job_kept for each job, a lease_kept for each lease that still holds GPUs,
// a training_told for each training.

/// A snapshot begins. Only the first entry of a journal may be one.
struct snapshot_begun {
  std::vector<std::uint64_t> epochs;  // that began under the journal's present id, ascending
  std::uint64_t journal = 0;          // the id that the journal had in the last epoch
  job_id next_job = 1;
  lease_id next_lease = 1;

  static constexpr auto fields() {
    using t = snapshot_begun;
    return std::tuple{&t::epochs, &t::journal, &t::next_job, &t::next_lease};
  }
  bool operator==(const snapshot_begun&) const = default;
};

/// A lease that a job has or had, and its nodes by rank: where its logs are.
struct attempt_record {
  lease_id lease = 0;
  std::vector<node_index> nodes;

  static constexpr auto fields() {
    return std::tuple{&attempt_record::lease, &attempt_record::nodes};
  }
  bool operator==(const attempt_record&) const = default;
};

/// A job, as the entries before the snapshot had made it.
struct job_kept {
  job_id job = 0;
  std::uint64_t request = 0;
  job_spec spec;
  job_state state = job_state::waiting;
  double submitted_s = 0, started_s = 0, ended_s = 0;
  std::uint32_t attempts = 0, out_of_memory = 0;
  double memory_factor = 1, bytes_floor = 0;
  std::uint64_t iterations_done = 0;
  lease_id lease = 0;
  plan how;
  allocation where;
  double predicted_bytes = 0, peak_bytes = 0;
  std::vector<memory_record> memory;
  std::string detail;
  std::optional<lease_outcome> closed;  // its last lease ended for good, job_ended is yet to come
  std::string owner;
  std::uint32_t losses = 0;  // attempts in a row that ended with a lost node and made no progress
  std::vector<lease_part> lost_parts;  // of the last lease, if it was lost and the job waits,
  std::vector<std::uint32_t> lost_succeeded;  // and those of them that had succeeded
  std::optional<std::int32_t> exit_code;      // of the command that ended last
  std::vector<attempt_record> tries;          // every attempt, the first one first
  bool suspended = false;
  std::vector<std::uint64_t> suspensions;  // the latest requests to suspend or resume it
  static constexpr std::size_t required = 26;

  static constexpr auto fields() {
    using t = job_kept;
    return std::tuple{&t::job,           &t::request,       &t::spec,        &t::state,
                      &t::submitted_s,   &t::started_s,     &t::ended_s,     &t::attempts,
                      &t::out_of_memory, &t::memory_factor, &t::bytes_floor, &t::iterations_done,
                      &t::lease,         &t::how,           &t::where,       &t::predicted_bytes,
                      &t::peak_bytes,    &t::memory,        &t::detail,      &t::closed,
                      &t::owner,         &t::losses,        &t::lost_parts,  &t::lost_succeeded,
                      &t::exit_code,     &t::tries,         &t::suspended,   &t::suspensions};
  }
  bool operator==(const job_kept&) const = default;
};

/// A lease that still holds GPUs, likewise.
struct lease_kept {
  lease_granted granted;
  bool revoked = false;
  lease_outcome outcome = lease_outcome::succeeded;
  std::string detail;
  std::vector<std::uint32_t> ended;  // parts that have ended
  std::uint64_t iterations = 0;
  double peak_bytes = 0;
  std::vector<std::uint32_t> succeeded;   // parts that have
  std::optional<std::int32_t> exit_code;  // the first that is not 0, if any part's is not

  static constexpr auto fields() {
    using t = lease_kept;
    return std::tuple{&t::granted,    &t::revoked,    &t::outcome,   &t::detail,   &t::ended,
                      &t::iterations, &t::peak_bytes, &t::succeeded, &t::exit_code};
  }
  bool operator==(const lease_kept&) const = default;
};

/// From now on the job is given nothing, or again what it needs.
struct job_suspended {
  job_id job = 0;
  double at_s = 0;
  bool suspended = true;
  std::string by;             // the name of the key of whoever asked for it,
  std::uint64_t request = 0;  // and the number of that: when it comes again it changes nothing

  static constexpr auto fields() {
    using t = job_suspended;
    return std::tuple{&t::job, &t::at_s, &t::suspended, &t::by, &t::request};
  }
  bool operator==(const job_suspended&) const = default;
};

/// Order is the wire's: new entries go to the end.
using journal_entry = std::variant<epoch_begun, job_accepted, lease_granted, lease_revoked,
                                   part_ended, job_ended, training_told, jobs_forgotten,
                                   snapshot_begun, job_kept, lease_kept, job_suspended>;

}  // namespace troupe
