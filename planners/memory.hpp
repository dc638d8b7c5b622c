#pragma once

#include <cstdint>

#include "messages/job.hpp"
#include "messages/model.hpp"

namespace troupe::planners {

/// W = V*h + l*(12*h^2 + 13*h) (Frenzy, section IV.A); for a model given as operators, their sum.
double marp_parameters(const model& m);

/// Peak bytes a GPU (Frenzy, section IV.A), B the global batch:
/// 20*W/t + s*B*h*l*(10/d + 24/(d*t) + 5*a*s/(d*h*t)).
/// Where d does not divide B, the largest share, ceil(B/d) samples, counts. For a model given as
/// operators the activations are what every operator hands on, kept whole by each member of a
/// tensor group.
double marp_bytes(const model& m, std::uint32_t global_batch, std::uint32_t data,
                  std::uint32_t tensor);

}  // namespace troupe::planners
