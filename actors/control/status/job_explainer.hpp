#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/ledger/cluster_state.hpp"
#include "messages/wire/client.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::actors {

/// Describes jobs and nodes to users: their state, and why. Decides nothing; lives while one reply
/// is made.
class job_explainer {
 public:
  /// The status desk's.
  struct sources {
    const troupe::cluster& cluster;
    const planners::policy& policy;
    const cluster_state& state;
    const std::map<job_id, plans_reply>& plans;
    const std::map<job_id, progress_report>& progress;
    const std::map<job_id, placement_note>& notes;            // of running jobs
    const std::map<std::uint32_t, gateway_traffic>& traffic;  // by datacenter
    bool starting = false;                                    // nodes may not have reported yet
    double now_s = 0;          // on the wall clock, like the journal's times
    runtime::caller viewer{};  // arguments of commands are for the owner and operators
    std::optional<planners::kept_gpus> kept{};  // for a job that waits
  };
  explicit job_explainer(sources s) : s_{std::move(s)} {}

  query_reply nodes() const;
  cluster_view view(const scheduling_counts& counts) const;
  job_status status_of(const job_record& j);
  explanation explain(job_id id, const policy_view& by_policy);

 private:
  const plans_reply* plans_of(const job_record& j) const;
  std::string detail_of(const job_record& j, const std::string& detail) const;
  std::string waiting_reason(const job_record& j);
  std::vector<std::uint32_t> ended_ranks(const job_record& j) const;
  std::string ended_text(const job_record& j) const;
  std::string absent_nodes() const;
  std::string summary_of(const job_record& j, const policy_view& by_policy) const;
  std::string summary_of_waiting(const job_record& j, const policy_view& by_policy) const;
  std::vector<considered_plan> plans_considered(const job_record& j,
                                                const policy_view& by_policy) const;
  std::vector<std::string> guesses_of(const job_record& j) const;
  std::vector<std::string> placement_of(const job_record& j) const;

  sources s_;
  bool is_only_waiting_job();
  // By list of plans, and what their memory must be above: why a job with them waits.
  std::map<std::pair<const std::vector<plan>*, double>, const char*> word_for_;
  std::optional<std::size_t> waiting_;  // jobs, at most 2
};

}  // namespace troupe::actors
