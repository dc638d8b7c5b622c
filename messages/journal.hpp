#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

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

  static constexpr auto fields() { return std::tuple{&epoch_begun::epoch, &epoch_begun::at_s}; }
  bool operator==(const epoch_begun&) const = default;
};

struct job_accepted {
  job_id job = 0;
  std::uint64_t request = 0;  // the client's, so that a repeated submission finds the same job
  double at_s = 0;
  job_spec spec;
  std::string owner;  // the name of the key that submitted it

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

  static constexpr auto fields() {
    using t = lease_revoked;
    return std::tuple{&t::lease, &t::at_s, &t::why, &t::detail};
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

  static constexpr auto fields() {
    using t = part_ended;
    return std::tuple{&t::lease,      &t::part,       &t::at_s,  &t::outcome,
                      &t::iterations, &t::peak_bytes, &t::detail};
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

/// Order is the wire's: new entries go to the end.
using journal_entry = std::variant<epoch_begun, job_accepted, lease_granted, lease_revoked,
                                   part_ended, job_ended, training_told>;

}  // namespace troupe
