#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"
#include "planners/cluster/idle_index.hpp"

namespace troupe::planners {

/// The nodes for a program that runs on exactly the number of GPUs that its user requests, as many
/// of each node: on the fewest nodes, then on those with the fewest idle GPUs. A program that
/// permits unequal numbers gets them where equal ones are not idle. Refers to its arguments.
class exact_nodes {
 public:
  /// `accepts`: whether the job may have these GPUs.
  exact_nodes(const cluster& c, const idle_index& idle, const job_spec& job, const plan& how,
              std::function<bool(const allocation&)> accepts);

  /// All of one datacenter; empty: there are none.
  allocation in_one_datacenter() const;
  /// The same of any datacenters.
  allocation anywhere() const;

 private:
  std::vector<node_index> with(std::uint32_t min) const;
  std::vector<node_index> of_one_datacenter(const std::vector<node_index>& from,
                                            std::uint32_t nodes) const;
  template <class Choose>
  allocation on_fewest(Choose choose) const;
  allocation unequal(const idle_index& idle) const;

  const cluster& c_;
  const idle_index& idle_;
  const job_spec& job_;
  const plan& how_;
  std::function<bool(const allocation&)> accepts_;
};

}  // namespace troupe::planners
