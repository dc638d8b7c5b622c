#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planners/cluster/idle_index.hpp"
#include "planners/plans/shortage.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::actors {

/// The inputs of a placement decision: the idle GPUs at that time, by node, of present nodes only.
struct placement_note {
  std::vector<std::uint32_t> idle;
  std::vector<bool> present;
  std::string why{};            // the policy's own sentence, if it has one
  std::vector<bool> drained{};  // empty: none
};

/// How the policy sees one job.
struct policy_view {
  std::string why_waiting;                           // empty: the job does not wait for the policy
  std::shared_ptr<const planners::idle_index> idle;  // without reserved GPUs; null: unknown
};

/// The policy's reason why a job with these plans waits, and the GPUs of their types that are on
/// nodes that cannot be used.
inline std::string why_waiting_text(const planners::policy& p, const planners::snapshot& now,
                                    job_id job, const std::vector<plan>* plans) {
  auto text = p.why_waiting(now, job).text;
  if (plans && text.find(", which is ") == std::string::npos)
    text += planners::unusable_text(now, *plans);
  return text;
}

}  // namespace troupe::actors
