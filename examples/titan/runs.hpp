#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "harness/figures.hpp"
#include "planners/titan/titan.hpp"
#include "studies/solve_log.hpp"
#include "studies/workload_simulation.hpp"

// Simulations of TITAN's workload, each made once.

using namespace troupe;  // an example's own header

/// A policy by its name, or one of TITAN's with other options under a name of its own.
struct contestant {
  std::string name;
  std::function<void(planners::titan_options&)> change{};  // none: as the name says
};

/// The result of one workload under one policy.
struct one_run {
  std::size_t jobs = 0, finished = 0, unions = 0, merged_jobs = 0, followers = 0;
  double jct_h = 0, queued_h = 0, makespan_h = 0;
  double start_s = 0;  // of an attempt, on average
  std::shared_ptr<const studies::workload_record> record;
};

class runs {
 public:
  const one_run& of(const contestant& who, double density, std::uint64_t seed);
  /// The mean over seeds 1 to `seeds`.
  double mean(const contestant& who, double density, std::uint64_t seeds,
              const std::function<double(const one_run&)>& what);
  /// The programs that a policy had solved, over all of its runs.
  const studies::solve_log& programs_of(const std::string& name) const {
    return *programs_.at(name);
  }

 private:
  std::shared_ptr<const planners::policy> policy_of(const contestant& who);
  const std::vector<arrival>& workload(double density, std::uint64_t seed);

  std::shared_ptr<const cluster> cluster_ = cluster_named("titan");
  std::map<std::pair<double, std::uint64_t>, std::vector<arrival>> workloads_;
  std::map<std::string, std::shared_ptr<const planners::policy>> policies_;
  std::map<std::string, std::shared_ptr<studies::solve_log>> programs_;
  std::map<std::tuple<std::string, double, std::uint64_t>, one_run> done_;
};
