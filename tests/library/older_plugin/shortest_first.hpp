#pragma once

#include "planners/core/policy.hpp"

/// Shortest job first: of the jobs that wait, the one that has the least left to do comes first. A
/// job that does not fit into what is idle is passed over. What runs is left alone.
class shortest_first final : public troupe::planners::policy {
 public:
  std::string_view name() const override { return "shortest_first"; }
  std::vector<troupe::planners::decision> decide(const troupe::planners::snapshot& s,
                                                 troupe::random_source&) const override;
  troupe::reason why_waiting(const troupe::planners::snapshot& s,
                             troupe::job_id job) const override;
};
