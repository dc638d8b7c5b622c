#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "actors/control/cluster_state.hpp"
#include "actors/control/job_progress.hpp"
#include "actors/protocol/protocol.hpp"
#include "messages/client.hpp"
#include "planners/core/policy.hpp"

namespace troupe::actors {

/// What a job's plan and nodes were chosen from: GPUs that were idle then, by node, those of absent
/// nodes not among them.
struct placement_note {
  std::vector<std::uint32_t> idle;
  std::vector<bool> present;
};

/// What people are told about jobs and nodes: where they stand, and in sentences why. It decides
/// nothing, and lives while one reply is made.
class job_explainer {
 public:
  /// What the scheduler knows.
  struct sources {
    const troupe::cluster& cluster;
    const planners::policy& policy;
    const cluster_state& state;
    const std::map<job_id, plans_made>& plans;
    const std::map<job_id, job_progress>& progress;
    const std::map<job_id, placement_note>& notes;  // of jobs that run
    bool starting = false;                          // nodes may not have reported yet
    double now_s = 0;                               // by the wall clock, as the journal's times
  };
  explicit job_explainer(sources s) : s_{std::move(s)} {}

  query_reply nodes() const;
  job_status status_of(const job_record& j);
  /// `now` is what the policy would be asked about.
  explanation explain(job_id id, const planners::snapshot& now);

 private:
  const plans_made* plans_of(const job_record& j) const;
  std::string waiting_reason(const job_record& j);
  std::string absent_nodes() const;
  std::string summary_of(const job_record& j, const planners::snapshot& now) const;
  std::string summary_of_waiting(const job_record& j, const planners::snapshot& now) const;
  std::vector<considered_plan> plans_considered(const job_record& j) const;
  std::vector<std::string> placement_of(const job_record& j) const;

  sources s_;
  std::map<const std::vector<plan>*, bool> servable_;  // lists of which idle GPUs serve a plan
};

}  // namespace troupe::actors
