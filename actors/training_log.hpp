#pragma once

#include <map>
#include <optional>
#include <vector>

#include "messages/stage.hpp"
#include "messages/units.hpp"

namespace troupe::actors {

/// What trainers have told of their jobs.
class training_log {
 public:
  /// What of a report must outlive the controller, if it has iterations, a checkpoint or a sentence
  /// that nobody has told before. Numbers of each stage are left out: they are many, and come again
  /// with the next report.
  std::optional<training_report> to_keep(const training_report& r) const;
  /// A report that came twice, or late, changes nothing.
  void add(const training_report& r);

  void forget(job_id job) { jobs_.erase(job); }
  /// Reports that make this log of an empty one, without each stage's numbers: one a job.
  std::vector<training_report> snapshot() const;

  /// All that is known of a job; null: nothing.
  const training_report* of(job_id job) const;

  /// How many iterations the leases before this one have come to, and how long one took in the
  /// middle. 0: nothing is known, or this lease's trainer has told of itself already.
  std::uint64_t reached(job_id job, lease_id lease) const;
  double took_s(job_id job, lease_id lease) const;

  /// Iterations in the newest whole checkpoint that a lease's trainer has told of.
  std::uint64_t saved(job_id job, lease_id lease) const;

 private:
  std::map<job_id, training_report> jobs_;
};

}  // namespace troupe::actors
