#pragma once

#include <memory>
#include <optional>

#include "planners/policy/policy.hpp"

namespace troupe::planners {

/// GPUs that are kept idle for a waiting program.
struct reservation {
  job_id job = 0;
  allocation where;
};

/// A reservation, and since when there is one for this job, on the snapshots' clock.
struct kept_gpus {
  job_id job = 0;
  allocation where;
  double since_s = 0;
};
/// The same, of a snapshot and the decisions on it; nothing: they start the job, or there is none.
void follow(std::optional<kept_gpus>& kept, const snapshot& s,
            const std::vector<decision>& decisions);

/// For the first waiting program, by priority and then by arrival, that needs several GPUs at a
/// time and finds too few: the idle ones of the nodes that it could have soonest, which are those
/// with the most idle GPUs of a type that it can use, of one group of datacenters
/// (plans/places.hpp). Nodes that are absent or drained do not count, so that a program which needs
/// them keeps nothing. Nothing for a replayed job: traces are decided by the rules of the policies'
/// papers.
std::optional<reservation> reservation_of(const snapshot& s);

/// `inner`, without the GPUs of a reservation if jobs that come after its program would start on
/// them. The end of a program is not known in advance, so these might keep the one that waits from
/// ever having all of its GPUs at a time. It waits for the jobs that run on its nodes now, and for
/// no others. Why they wait is then said by why_waiting(), of the last decisions.
/// Precondition: `inner` is not null.
std::shared_ptr<const policy> with_reservation(std::shared_ptr<const policy> inner);

}  // namespace troupe::planners
