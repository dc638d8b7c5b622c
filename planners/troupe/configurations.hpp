#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/cluster/snapshot.hpp"

namespace troupe::planners {

// The choices of a job under policy troupe (docs/planners/troupe.md, "Configurations").

/// One way to run a job: a number of GPUs of one pool, with the split that is fastest there.
struct configuration {
  std::uint32_t pool = 0;  // index into pools_of()
  plan how;                // bytes_per_gpu: what it needs; samples_per_s: on GPUs packed tightly
  double weight = 0;       // see weight_of()
  std::uint32_t gpus = 0;  // how.gpus(), which counts those of all stages
  bool guess = false;      // samples_per_s rests on one (planners/devices/guesses.hpp)
};

/// A training whose user left its shape open, and which can continue on other GPUs: it gets
/// configurations as simulated work does.
bool is_elastic(const job_spec& job);

/// Speed of each GPU type over that of the cluster's fastest, of which a node has GPUs.
std::vector<double> relative_speeds(const cluster& c);

/// Weight of an allocation, by these speeds: the number of GPUs of the cluster's fastest type that
/// would be as fast.
double weight_of(const cluster& c, const std::vector<double>& speeds, const allocation& where);

/// A plan's value by the job's objective: samples/s (fastest), samples/s per GPU (efficient), or
/// samples/s per unit of cost and hour (cheapest).
double worth(const job_spec& job, const plan& how);

/// Every configuration that the job's memory and bounds allow on the whole cluster, pool by pool,
/// the fewest GPUs first: the faster of its data and tensor parallel split and the pipelines among
/// `j.plans`. A count that is not at least 0.5 % faster than a smaller one of the same pool is left
/// out. Of a program of the user's own that is not elastic, and so never stopped, only the one
/// that its objective likes best in each pool; none of a program with exact_gpus
/// (plans/exact_gpus.hpp).
std::vector<configuration> configurations_of(const cluster& c, const std::vector<gpu_pool>& pools,
                                             const job_view& j);

/// The figures of a configuration that every decision reads, apart from its plan.
struct configuration_figures {
  double samples_per_s = 0, weight = 0;
  std::uint32_t pool = 0, gpus = 0;
  bool guess = false;
};

/// The configurations of alike jobs, with the figures that decisions need of them.
struct configuration_table {
  std::vector<configuration> options;          // configurations_of()
  std::vector<configuration_figures> figures;  // of the options, in their order
  std::vector<std::uint32_t> pools;            // those of the options, each once
  /// Seconds of a GPU of the fastest type that a sample costs at best; of a job without options by
  /// the plans it has.
  double sample_cost = 0;
  double fastest_samples_per_s = 0;  // likewise
  double efficient_weight = 0;       // weight of the option with sample_cost
  /// Samples/s of all GPUs together, if each pool runs copies of the job with its most efficient
  /// option.
  double cluster_samples_per_s = 0;
  double min_weight = 0;  // of the options
};

/// Sets the options, pool by pool, and what is derived from each.
void set_options(configuration_table& table, std::vector<configuration> options);

/// Remembers the tables of jobs whose plans are one list, which are alike. Nothing that it answers
/// depends on what it was asked before.
class configuration_cache {
 public:
  /// To be called before a decision: forgets the tables of another cluster, and of jobs that are
  /// gone. True: the cluster is another one.
  bool prepare(const snapshot& s);
  /// Those of prepare()'s cluster, as if no GPU were held; with the next, valid until then.
  const std::vector<gpu_pool>& pools() const { return pools_; }
  /// The pool of each node's GPUs; of a node that has none, as one that was removed, the number of
  /// pools.
  const std::vector<std::uint32_t>& pools_of_nodes() const { return pool_of_; }
  /// By GPU type: relative_speeds().
  const std::vector<double>& speeds() const { return speeds_; }
  /// The cluster's.
  double gpus() const { return gpus_; }
  /// Stays true until prepare(), and longer while somebody holds the plans.
  const configuration_table& of(const cluster& c, const job_view& j);
  /// The same of a job that has never run.
  const configuration_table& of(const cluster& c, const recent_arrival& a);

 private:
  struct key {
    const std::vector<plan>* plans = nullptr;
    double bytes_floor = 0;
    bool operator==(const key&) const = default;
  };
  struct hash {
    std::size_t operator()(const key& k) const {
      return std::hash<const void*>{}(k.plans) ^ std::hash<double>{}(k.bytes_floor);
    }
  };
  struct entry {
    std::shared_ptr<const std::vector<plan>> plans;  // held, so that its address stays its own
    configuration_table table;
  };

  std::shared_ptr<const cluster> shared_;  // null: the last snapshot's was not shared
  cluster cluster_;
  std::vector<gpu_pool> pools_;
  std::vector<std::uint32_t> pool_of_;
  std::vector<double> speeds_;
  double gpus_ = 0;
  std::unordered_map<key, std::unique_ptr<entry>, hash> entries_;  // order never reaches an output
};

}  // namespace troupe::planners
