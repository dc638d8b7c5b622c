#pragma once

#include <cstdint>
#include <string>

namespace troupe::simulation {

/// Runs a workload of simulated jobs and trainings on the small cluster, cancels some of it, while
/// hosts crash and links lose, duplicate, reorder and split, all from one seed. An oracle
/// (oracle.hpp) watches. Gives what is wrong, or an empty string.
std::string run_fault_seed(std::uint64_t seed);
/// The same while operators change the cluster: nodes leave and come back, the file's order and its
/// settings change, nodes are drained.
std::string run_changing_seed(std::uint64_t seed);
/// The same with fine-tuning jobs under TITAN's policies, which merge them and let them follow each
/// other on GPUs.
std::string run_union_seed(std::uint64_t seed);
/// The same with programs, most of them elastic, under policies that stop, resize and move these.
std::string run_program_seed(std::uint64_t seed);

/// The same with trainings whose pipelines are groups of their own shares in several datacenters.
std::string run_groups_seed(std::uint64_t seed);

}  // namespace troupe::simulation
