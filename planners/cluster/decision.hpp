#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/job_union.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cluster/snapshot.hpp"

namespace troupe::planners {

/// The expected result of a start. Bytes are per GPU, for the stage that needs most.
struct start_estimate {
  double iteration_s = 0;
  double bytes_per_gpu = 0;
  bool out_of_memory = false;       // simulated work: the formula predicts it
  std::optional<double> start_s{};  // simulated work: before the first iteration; none: restart_s

  bool operator==(const start_estimate&) const = default;
};

/// One decision. A stopped job returns to the queue with its progress. A moved job is also stopped,
/// and its new GPUs are reserved until it has started there; stopping and starting it in the same
/// list is equivalent. A start whose GPUs are still being released waits, and they are reserved.
struct decision {
  enum class kind { start, stop, give_up, move };
  kind what = kind::start;
  job_id job = 0;
  plan how;          // start, move; bytes_per_gpu 0: memory not predicted
  allocation where;  // start, move
  reason why;        // give_up: why no plan can ever run; start, move: why so, for people
  std::optional<double> grace_s{};  // move: time to save; none: the cluster's
  /// start, move: the expected result; none: estimate_start()'s.
  std::optional<start_estimate> expected{};
  /// start: waiting jobs that are trained as one with it; it has `expected` then.
  std::vector<job_id> with{};
  merge_kind kind_of_union = merge_kind::shared;
  /// start: a running job some of whose GPUs are among `where`; each passes to this one when that
  /// job's part there ends.
  std::optional<job_id> after{};

  /// Whether the job gets GPUs by it.
  bool starts() const { return what == kind::start || what == kind::move; }
};

/// No plan can ever run the job.
inline decision give_up(job_id job, reason why) {
  return {decision::kind::give_up, job, {}, {}, std::move(why)};
}

/// Gives up a job without any plan; false: it has one.
inline bool gives_up(const job_view& j, std::vector<decision>& out) {
  if (has_plans(j)) return false;
  out.push_back(give_up(j.id, why_none(j)));
  return true;
}

inline decision start_job(job_id job, plan how, allocation where) {
  return {decision::kind::start, job, std::move(how), std::move(where), {}};
}
inline decision stop_job(job_id job) {
  return {decision::kind::stop, job, {}, {}, {}};
}

}  // namespace troupe::planners
