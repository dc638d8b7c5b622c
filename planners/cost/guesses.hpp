#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "messages/domain/cluster.hpp"
#include "messages/domain/gpu_guess.hpp"
#include "messages/domain/job.hpp"
#include "planners/cost/profile.hpp"
#include "planners/model/job_device.hpp"

// Estimates that rest on a figure which nobody has measured, so that whoever reads them knows
// (docs/planners/cost_model.md, "GPU types").

namespace troupe::planners {

/// Is the speed that the cost model gives the job on this type a guess? Not if it was measured, for
/// this job or by a profile, nor if whole trainings' efficiencies were (kernel_us 0).
inline bool rests_on_guess(const job_spec& job, const gpu_type& gpu) {
  const bool measured = job.slots || (job.train && !job.train->costs.empty()) ||
                        device_facts_of(job).is_host_core || gpu.kernel_us == 0 ||
                        profile_of(job, gpu) != nullptr;
  return !measured && has_guessed_efficiency(gpu);
}

/// A sentence, without a full stop, for each type of `types`, which may repeat, whose speed is a
/// guess.
inline std::vector<std::string> guesses_about(const cluster& c, const job_spec& job,
                                              const std::vector<gpu_index>& types) {
  std::vector<std::string> out;
  for (auto at = types.begin(); at != types.end(); ++at)
    if (std::find(types.begin(), at, *at) == at && rests_on_guess(job, c.gpus[*at]))
      out.push_back("the speed of " + c.gpus[*at].name +
                    " is a guess: no training and no products of it were measured (troupe profile "
                    "measures it)");
  return out;
}

}  // namespace troupe::planners
