#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "messages/domain/work_kind.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/crius/crius_options.hpp"
#include "planners/crius/crius_search.hpp"
#include "planners/policy/policy.hpp"

// One decision of Crius (Algorithm 1; docs/planners/crius.md, "Who is scheduled when").

namespace troupe::planners {

/// Allocates jobs virtually, one after the other (VIRTUALALLOC), on copies of the snapshot's free
/// GPUs; what has changed in the end becomes decisions (FINALIZEALLOC). Used once: decide or solve
/// consume it. Keeps references to the snapshot, its jobs' plans and the options.
class crius_round {
 public:
  crius_round(const snapshot& s, const crius_options& options);

  std::vector<decision> decide() &&;
  /// The same by one integer program over all jobs instead of the search, to measure the search by.
  std::vector<decision> solve() &&;

 private:
  /// A Cell that a job may have.
  struct option {
    std::uint32_t pool = 0;
    const plan* how = nullptr;
    double value = 0;    // normalized throughput
    double run_s = 0;    // until the job would end, its restart included
    bool equal = false;  // needs the same number of GPUs on each node (work_facts::exact_gpus)

    cell_choice cell() const { return {pool, how->gpus(), value}; }
  };
  /// A job that has GPUs, really or virtually.
  struct placed_job {
    const job_view* job = nullptr;
    std::vector<option> options;
    cell_choice present;
    allocation where;
    const plan* how = nullptr;  // new plan; null: the job goes on unchanged
    bool movable = true;        // may be rescaled or suspended
  };

  /// Studies in slots have none, and so no Cells.
  static bool has_model(const job_view& j) { return j.facts().has_model; }
  void add_running(const job_view& j);
  std::vector<option> options_of(const job_view& j) const;
  bool is_allowed(const job_view& j, const plan& p) const;
  bool meets_deadline(const job_view& j, const option& o) const;
  /// The running jobs' other Cells, prepared for searching.
  struct rescaling_search {
    std::vector<std::vector<std::uint32_t>> options;  // by job and choice: index into its options
    scheduling_search search;
  };
  rescaling_search prepare() const;
  std::optional<scheduling_choice> best_choice(const std::vector<option>& arrival);

  void schedule_waiting(std::vector<decision>& out);
  /// Notes the GPUs of each job's smallest Cell, and the idle ones of the pool that has most.
  void note_waiting(const std::vector<decision>& out) const;
  /// CELLBASEDSCHED for a waiting job. False: it stays pending (PEND).
  bool schedule(const job_view& j, std::vector<option> options);
  /// Opportunistic execution, its second half: suspends jobs that overtook this one.
  bool suspend_for(const job_view& j, std::vector<option> options);
  /// CELLBASEDSCHED without a job (line 12): rescalings that use idle GPUs.
  void use_idle();
  bool allocate(const scheduling_choice& choice, const job_view* arrival,
                const std::vector<option>& options);
  /// Gives a job of placed_ the Cell, on nodes that are taken from free_.
  void give(placed_job& x, const option& o, allocation where);
  /// Whether a running job overtook this one and may be suspended for it.
  bool could_suspend(const job_view& j, const placed_job& x) const;
  bool suspend_for(const job_view& j, const option& o, const std::vector<option>& options);
  /// Jobs with the same choices, which share a row of the integer program.
  struct alike_jobs {
    std::vector<std::size_t> jobs;  // index into placed_
    std::vector<cell_choice> choices;
    std::size_t present = none;  // index into choices

    static constexpr std::size_t none = ~std::size_t{0};
  };
  // Steps of solve(), in crius_solver_round.cpp:
  void add_waiting(std::vector<decision>& out);
  std::vector<alike_jobs> group_jobs() const;
  void place(std::vector<std::pair<std::size_t, std::size_t>> wishes, std::vector<decision>& out);

  /// Nodes for a choice among the free GPUs, preferring `present`; empty: too scattered.
  allocation find(const option& o, const allocation& present) const;

  const snapshot& s_;
  const crius_options& o_;
  std::vector<gpu_pool> pools_;
  free_gpus free_;
  std::vector<std::uint32_t> idle_;           // by pool
  std::vector<placed_job> placed_;            // running jobs, then those that this decision starts
  std::optional<rescaling_search> prepared_;  // valid until something is allocated
  std::vector<const job_view*> suspended_;
  std::uint64_t steps_;  // left for all searches
};

/// Seconds until a running job may be rescaled or suspended; 0: now.
double stays_s(const snapshot& s, const crius_options& o, const job_view& running);

}  // namespace troupe::planners
