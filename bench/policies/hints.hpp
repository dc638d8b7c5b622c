#pragma once

#include <cstdint>
#include <memory>

#include "planners/policy/policy.hpp"

namespace troupe::bench {

/// The errors in a policy's knowledge of each job's length.
struct hints {
  double sigma = 0;              // iterations are multiplied by exp(N(0, sigma)), per job
  std::uint64_t iterations = 0;  // not 0: of every job
  std::uint64_t seed = 1;

  bool are_exact() const { return sigma == 0 && iterations == 0; }
};

/// `inner`, which sees each job with a wrong number of iterations: never fewer than it has done.
/// The jobs themselves take what they take.
std::shared_ptr<const planners::policy> with_hints(std::shared_ptr<const planners::policy> inner,
                                                   const hints& h);

}  // namespace troupe::bench
