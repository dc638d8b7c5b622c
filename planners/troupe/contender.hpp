#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "planners/cluster/snapshot.hpp"
#include "planners/plans/fits.hpp"
#include "planners/troupe/configurations.hpp"

// The jobs of a decision of Troupe's policy, and what each of them gets (docs/planners/troupe.md).
// Times are in seconds; a weight is a number of GPUs, each counted by its speed over that of the
// cluster's fastest type; work is in seconds of such a GPU.

namespace troupe::planners {

struct troupe_options {
  double price_factor = 2;    // on the price of a GPU-second, for the jobs that wait behind
  double max_load = 0.95;     // arriving_load, as far as it counts
  double arriving = 4;        // factor of the price for expected arrivals
  double hold_restarts = 13;  // restarts: later the job may be stopped for it
  double min_saving = 0.2;    // share of the time left, for a change that only uses idle GPUs
  double stop_cost = 16;      // restarts that a change of a running job is counted as
  double overdue_times = 1;   // shortest runs after its submission until a job is overdue
  double settle_starts = 20;  // in restarts after its start, until which a job is left alone
  double settle_step = 3;     // restarts, of which the end of that time is a multiple
};

/// A job's place in the order in which the last decision has served its jobs: where the next one
/// begins to sort. It says nothing of the job, so that all are equal.
struct last_place {
  static constexpr auto none = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t at = none;
  bool operator==(const last_place&) const { return true; }
};

/// A job that waits, or that runs and can be stopped.
struct contender {
  const job_view* job = nullptr;
  const configuration_table* table = nullptr;

  // By its view alone (contender_of). Here once more, since every decision reads these of every
  // job, and a view is ten times as large.
  job_id id = 0;
  std::int32_t priority = 0;
  bool is_running = false;
  bool has_known_length = true;
  double submitted_s = 0;
  double restart_s = 0;      // see restart_of()
  double settled_s = 0;      // see settled_s(); waiting: 0
  double whole_samples = 0;  // those done included

  // Now.
  double samples_left = 0;
  double waited_s = 0;                 // since its submission, when something last happened
  double start_left_s = 0;             // until its present start ends
  std::optional<std::size_t> present;  // the option that it runs with, if it runs with one
  double assumed_work = 0;             // for programs of unknown length; all have the same
  /// Measured over expected time of an iteration, where the expectation is a guess: in
  /// samples_left, which it corrects for options that are guesses, too. 1: the estimate of the job
  /// is wrong.
  double guess_slowdown = 1;
  last_place* place = nullptr;  // null: nobody keeps it

  bool operator==(const contender&) const = default;
  const std::vector<configuration>& options() const { return table->options; }
  bool runs() const { return is_running; }
  /// Samples left as they count for the samples_per_s of an option, which is a guess or not.
  double samples_left_on(bool guess) const {
    return guess ? samples_left : samples_left / guess_slowdown;
  }
  /// The work left, in seconds of a GPU of the fastest type, by its most efficient configuration.
  double work() const {
    return assumed_work > 0 ? assumed_work : samples_left * table->sample_cost;
  }
};

/// A contender as the view of a job, with these configurations, says. The rest is as at the
/// submission of a job without work.
contender contender_of(const cluster& c, const job_view& j, const configuration_table& table,
                       const troupe_options& o);

/// Since when a job comes before shorter ones of its priority, so that an endless stream of them
/// cannot starve it. `samples`: its whole work, or of a job of unknown length what is left;
/// `fastest`: samples per second.
inline double overdue_s(double submitted_s, double samples, double fastest,
                        const troupe_options& o) {
  return submitted_s + o.overdue_times * samples / fastest;
}
inline double overdue_s(const contender& x, const troupe_options& o) {
  return overdue_s(x.submitted_s, x.has_known_length ? x.whole_samples : x.samples_left,
                   x.table->fastest_samples_per_s, o);
}
inline bool is_overdue(const contender& x, double now_s, const troupe_options& o) {
  return now_s >= overdue_s(x, o);
}

/// Until when a running job is not stopped or moved: a multiple of settle_step restarts, so that
/// jobs that start shortly after one another are decided about together.
double settled_s(const cluster& c, const job_view& j, const troupe_options& o);
/// Whether a running job began too recently to be stopped or moved.
inline bool is_settling(const contender& x, double now_s) {
  return x.runs() && now_s < x.settled_s;
}

/// For how long after its submission a job that could start may wait for GPUs that running jobs
/// release. No longer than a start settles: a job that has started can be moved from then on.
inline double patience_s(const contender& x, const troupe_options& o) {
  return o.settle_starts * x.restart_s;
}
/// Until when it may, if it is not overdue before.
inline double patient_until_s(const contender& x, const troupe_options& o) {
  return std::min(x.submitted_s + patience_s(x, o), overdue_s(x, o));
}

/// A contender's share of an assignment.
struct assigned {
  const contender* who = nullptr;
  std::optional<std::size_t> option;  // none: nothing, or `mixed`
  /// GPUs of several pools, where no single pool can hold it. Allocated apart: few jobs have it,
  /// and assignments are sorted.
  std::shared_ptr<const placed_plan> mixed{};
  std::size_t behind = 0;  // jobs, when it was served
  double price = 0;        // seconds that they wait for a GPU-second of the fastest type
  /// It could start, and waits for GPUs that running jobs release: for which option, and for how
  /// many seconds from when something last happened; 0: it does not.
  std::uint32_t awaited = 0;
  double wait_s = 0;

  bool has_gpus() const { return option || mixed; }
};

}  // namespace troupe::planners
