#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "messages/wire/client.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"

namespace troupe::actors {

/// From a trainer's report, which must have an iteration: the iterations give the speed.
progress_report progress_of(const training_report& r, double now_s);

/// From a program's report; `before` iterations were done by earlier leases.
progress_report progress_of(const lease_record& l, std::uint64_t before, const part_report& r,
                            double now_s);

/// Takes over `p` if it is newer than `known`: of a later lease, or a later iteration. Another
/// report of the same iteration is not, since the first one's time is that of completion; but it
/// may say the job's last iteration, which stays known after its attempt.
inline bool take_newer(progress_report& known, const progress_report& p) {
  const auto last = p.last && p.lease >= known.lease ? p.last : known.last;
  const bool newer = std::pair{p.lease, p.iteration} > std::pair{known.lease, known.iteration};
  if (newer) known = p;
  return std::exchange(known.last, last) != last || newer;
}

/// The job's last iteration: as its file says, or as its program does (`known` may be null).
std::optional<std::uint64_t> last_iteration(const job_spec& s, const progress_report* known);

/// Fills in a job's progress and expected end. `lease` and `known` may be null: it is not running,
/// nothing was reported.
void add_progress(job_status& s, const job_record& j, const lease_record* lease,
                  const progress_report* known, double now_s);

/// Turns the progress of a union, in `s`, into that of one of its members.
void to_member_progress(job_status& s, const job_record& member, const job_record& of_union);

}  // namespace troupe::actors
