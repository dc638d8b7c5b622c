#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "planners/cluster/gpu_pools.hpp"
#include "planners/crius/crius.hpp"
#include "planners/crius/crius_search.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::planners {

/// One scheduling decision of Crius (Algorithm 1): jobs are allocated virtually, and what has
/// changed in the end is decided.
class crius_round {
 public:
  crius_round(const snapshot& s, const crius_options& options);

  std::vector<decision> decide() &&;
  /// The same by an integer program over all jobs, in place of the search: a yardstick.
  std::vector<decision> solve() &&;
  /// Why a waiting job would still wait. For people.
  reason why_waiting(const job_view& j);

 private:
  /// A Cell that a job may have.
  struct option {
    std::uint32_t pool = 0;
    const plan* how = nullptr;
    double value = 0;    // normalised throughput
    double run_s = 0;    // until the job would be done, its restart included
    bool equal = false;  // as many of each node (has_exact_gpus)
  };
  /// A job that has GPUs, really or virtually.
  struct placed_job {
    const job_view* job = nullptr;
    std::vector<option> options;
    cell_choice present;
    allocation where;
    const plan* how = nullptr;  // what it gets; null: it goes on as it is
    bool movable = true;
  };

  void add_running(const job_view& j);
  std::vector<option> options_of(const job_view& j) const;
  bool is_allowed(const job_view& j, const plan& p) const;
  bool meets_deadline(const job_view& j, const option& o) const;
  double remaining(const job_view& j) const;
  /// What running jobs could have, ready to be searched.
  struct rescaling_search {
    std::vector<std::vector<std::uint32_t>> options;  // of each job's choices: index into options
    scheduling_search search;
  };
  rescaling_search prepare() const;
  std::optional<scheduling_choice> best_choice(const std::vector<option>& arrival);

  void schedule_waiting(std::vector<decision>& out);
  bool schedule(const job_view& j, std::vector<option> options);
  bool suspend_for(const job_view& j, std::vector<option> options);
  void use_idle();
  bool allocate(const scheduling_choice& choice, const job_view* arrival,
                const std::vector<option>& options);
  bool could_suspend(const job_view& j, const placed_job& x) const;
  bool suspend_for(const job_view& j, const option& o, const std::vector<option>& options);
  /// Jobs with the same choices in the program.
  struct alike_jobs {
    std::vector<std::size_t> jobs;  // index into placed_
    std::vector<cell_choice> choices;
    std::size_t present = none;  // of choices

    static constexpr std::size_t none = ~std::size_t{0};
  };
  void add_waiting(std::vector<decision>& out);
  std::vector<alike_jobs> group_jobs() const;
  void place(std::vector<std::pair<std::size_t, std::size_t>> wishes, std::vector<decision>& out);

  allocation find(const option& o, const allocation& present) const;

  const snapshot& s_;
  const crius_options& o_;
  std::vector<gpu_pool> pools_;
  free_gpus free_;
  std::vector<std::uint32_t> idle_;           // by pool
  std::vector<placed_job> placed_;            // running jobs, then those that this decision starts
  std::optional<rescaling_search> prepared_;  // until something is allocated
  std::vector<const job_view*> suspended_;
  std::uint64_t steps_;
};

}  // namespace troupe::planners
