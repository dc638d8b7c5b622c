#pragma once

#include <cstdint>
#include <optional>

#include "actors/control/ledger.hpp"
#include "messages/client.hpp"
#include "messages/stage.hpp"
#include "messages/units.hpp"
#include "messages/work.hpp"

namespace troupe::actors {

/// How far a running job has come, as its trainer or its program has reported. Not journaled: the
/// next report says it again.
struct job_progress {
  job_id job = 0;
  lease_id lease = 0;
  std::uint64_t iteration = 0;  // that have run, from the job's beginning
  double at_s =
      0;  // when that was reported, by the controller's wall clock, as the journal's times
  double iteration_s = 0;  // what one takes; 0: not known
  std::optional<double> loss, tokens_per_s;
};

/// From a trainer's report; its iterations, of which there must be one, give the pace.
job_progress progress_of(const training_report& r, double now_s);

/// From a program's report; `before` iterations were done by earlier leases.
job_progress progress_of(const lease_record& l, std::uint64_t before, const part_report& r,
                         double now_s);

/// Fills in how far a job has come and when it is expected to end. `lease` and `known` may be null:
/// it does not run, nothing was reported.
void add_progress(job_status& s, const job_record& j, const lease_record* lease,
                  const job_progress* known, double now_s);

}  // namespace troupe::actors
