#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe::simulation {

struct bad_seed {
  std::uint64_t seed = 0;
  std::string wrong;
};

/// Runs `run(seed)` for `first`, first + 1, ... `last`, in as many processes as there are cores. A
/// process that dies, or works on one seed for more than `limit_s`, makes that seed a bad one.
/// `enough`: no seed is begun once so many bad ones are known. Gives the bad ones, by seed.
/// To be called while this process has one thread.
std::vector<bad_seed> run_seeds(std::uint64_t first, std::uint64_t last, std::size_t enough,
                                const std::function<std::string(std::uint64_t)>& run,
                                unsigned limit_s = 60);

}  // namespace troupe::simulation
