#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/random.hpp"
#include "messages/reason.hpp"
#include "planners/core/estimate.hpp"
#include "planners/core/snapshot.hpp"

namespace troupe::planners {

/// One thing to do. A job that is stopped goes back to the queue with the progress it has made. One
/// that is moved is stopped, too, and its new GPUs are kept for it until it has started there; to
/// stop and start it in the same list is the same. A start whose GPUs are still being freed waits
/// for them, and they are kept for it.
struct decision {
  enum class kind { start, stop, give_up, move };
  kind what = kind::start;
  job_id job = 0;
  plan how;  // start, move; bytes_per_gpu 0: nobody predicted the memory, the user's word counts
  allocation where;                 // start, move
  reason why;                       // give_up: no way to run this job is left
  std::optional<double> grace_s{};  // move: how long it may take to save; none: the cluster's
  /// start, move: what is expected of it; none: what estimate_start() says.
  std::optional<start_estimate> expected{};
};

/// Decides what runs where. A policy has no state between calls, reads no clock and no file: the
/// same snapshot and the same random numbers give the same decisions.
class policy {
 public:
  virtual ~policy() = default;

  virtual std::string_view name() const = 0;

  /// 0: called on every arrival and every departure. Otherwise: called every so many seconds.
  virtual double round_s() const { return 0; }

  /// What to do now, in order. Each start must satisfy fits() after those before it.
  virtual std::vector<decision> decide(const snapshot& s, random_source& random) const = 0;

  /// Why a waiting job waits, as a sentence. Only asked for by people.
  virtual reason why_waiting(const snapshot& s, job_id job) const = 0;
};

/// A policy by its name (frenzy, fcfs, opportunistic, sia), or null.
std::unique_ptr<policy> make_policy(std::string_view name);

/// The names that make_policy knows.
std::vector<std::string_view> policy_names();

}  // namespace troupe::planners
