#pragma once

#include <cstdint>
#include <string>

namespace troupe::simulation {

/// A policy asks for a union on GPUs that another job has, which no policy of ours does, and again
/// when they are free. Returns what is wrong; empty: nothing.
std::string run_refused_union(std::uint64_t seed);

}  // namespace troupe::simulation
