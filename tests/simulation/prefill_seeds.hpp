#pragma once

#include <cstdint>
#include <string>

namespace troupe::simulation {

/// Runs a training whose bubbles serve so many prompts, a tenth of which their clients give up,
/// through all actors, while hosts crash and links lose, duplicate and reorder, all from one seed.
/// Gives what is wrong, or an empty string: a request that did not end exactly once, a page that
/// stayed reserved, a first token from a part of a cache, a prefill while its device trained or in
/// another datacenter, or one that went on although it was cancelled.
std::string run_prefill_seed(std::uint64_t seed, std::uint32_t requests);

}  // namespace troupe::simulation
