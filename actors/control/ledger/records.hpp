#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/control/ledger/shared_list.hpp"
#include "actors/control/ledger/shared_value.hpp"
#include "messages/domain/job_progress.hpp"
#include "messages/domain/job_union.hpp"
#include "messages/domain/memory.hpp"
#include "messages/wire/client.hpp"
#include "messages/wire/journal.hpp"

namespace troupe::actors {

/// State of a job; a function of the journal.
struct job_record {
  job_id id = 0;
  std::uint64_t request = 0;
  shared_value<job_spec> spec;
  job_state state = job_state::waiting;
  double submitted_s = 0, started_s = 0, ended_s = 0;
  job_progress progress;
  memory_history history;
  std::optional<double> not_before_s{};  // of a waiting job: it is not started before
  std::optional<end_word> word{};        // why its last attempt, or the job, has ended
  lease_id lease = 0;                    // the present or last one
  // While the job waits after a lost lease: its parts, and which of them had succeeded.
  std::vector<lease_part> lost_parts;
  std::vector<bool> lost_succeeded;
  plan how;
  allocation where;
  double predicted_bytes = 0, peak_bytes = 0;
  std::vector<memory_record> memory;
  std::string detail;
  // All attempts, oldest first. Shared: a record is copied several times in each of them.
  shared_list<attempt_record> tries;
  std::string owner;                      // name of the key that submitted it
  std::optional<std::int32_t> exit_code;  // of the last command that ended
  bool suspended = false;                 // it gets no GPUs
  std::vector<std::uint64_t>
      suspensions;  // request numbers of the latest suspensions and resumptions
  // The first part that failed in the program's last attempt; its node is in `tries`.
  std::optional<std::uint32_t> failed_rank;
  std::optional<job_union> members;       // of a union: a job of the controller's own
  std::optional<job_id> in;               // the union that it runs in; its lease is that one's
  std::optional<elastic_record> elastic;  // of an elastic program that has had GPUs

  bool operator==(const job_record&) const = default;
};

/// A lease that still holds GPUs.
struct lease_record {
  lease_granted granted;
  bool revoked = false;
  lease_outcome outcome = lease_outcome::succeeded;  // so far; the first failure counts
  end_word word = end_word::finished;                // likewise
  std::string detail;
  std::vector<bool> ended, succeeded;  // by part
  std::uint64_t iterations = 0;        // the minimum over the parts that have ended
  double peak_bytes = 0;
  std::optional<std::int32_t> exit_code;     // the first nonzero one, if there is any
  std::optional<std::uint32_t> failed_part;  // the one that is the reason
  std::optional<std::uint32_t> rank;         // the program's rank that failed
  std::optional<program_end> program;        // of the parts that have ended; the minimum is saved
  std::vector<bool> ended_with_zero;         // exit status, by part
  double grace_s = 0;                        // of its revocation
  std::optional<double> revoked_s;           // when it was first revoked
  std::optional<std::uint64_t> saved;        // as its program has reported while it ran

  bool operator==(const lease_record&) const = default;
};

/// The iterations that a member has done in its union when the union has done `done`.
std::uint64_t iterations_in_union(const job_record& of_union, job_id member, std::uint64_t done);
/// The part of the union, 0 to 1, after which the member is done.
double end_in_union(const job_record& of_union, job_id member);

}  // namespace troupe::actors
