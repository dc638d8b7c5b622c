#pragma once

#include <cstdint>
#include <optional>

#include "actors/control/ledger.hpp"
#include "messages/client.hpp"
#include "messages/stage.hpp"
#include "messages/units.hpp"
#include "messages/work.hpp"

namespace troupe::actors {

/// The progress of a running job, as reported by its trainer or its program. Not journaled: the
/// next report repeats it.
struct job_progress {
  job_id job = 0;
  lease_id lease = 0;
  std::uint64_t iteration = 0;  // completed, from the job's beginning
  double at_s = 0;  // time of that report on the controller's wall clock, like the journal's times
  double iteration_s = 0;  // 0: unknown
  std::optional<double> loss, tokens_per_s;
};

/// From a trainer's report, which must have an iteration: the iterations give the speed.
job_progress progress_of(const training_report& r, double now_s);

/// From a program's report; `before` iterations were done by earlier leases.
job_progress progress_of(const lease_record& l, std::uint64_t before, const part_report& r,
                         double now_s);

/// Fills in a job's progress and expected end. `lease` and `known` may be null: it is not running,
/// nothing was reported.
void add_progress(job_status& s, const job_record& j, const lease_record* lease,
                  const job_progress* known, double now_s);

}  // namespace troupe::actors
