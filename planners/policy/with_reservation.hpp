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

/// For the first waiting program, by priority and then by arrival, that needs several GPUs at a
/// time and finds too few: the idle ones of the nodes that it could have soonest, which are those
/// with the most idle GPUs of a type that it can use. Nothing for a replayed job: traces are
/// decided by the rules of the policies' papers.
std::optional<reservation> reservation_of(const snapshot& s);

/// `inner`, without the GPUs of a reservation if jobs that come after its program would start on
/// them. The end of a program is not known in advance, so these might keep the one that waits from
/// ever having all of its GPUs at a time. It waits for the jobs that run on its nodes now, and for
/// no others. Precondition: `inner` is not null.
std::shared_ptr<const policy> with_reservation(std::shared_ptr<const policy> inner);

}  // namespace troupe::planners
