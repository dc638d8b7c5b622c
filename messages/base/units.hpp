#pragma once

#include <cstdint>

namespace troupe {

/// A job's number, assigned by the controller; from 1.
using job_id = std::uint64_t;
/// A lease's number: one attempt of one job; from 1, never reused.
using lease_id = std::uint64_t;
/// An index into cluster::nodes.
using node_index = std::uint32_t;
/// An index into cluster::gpus.
using gpu_index = std::uint32_t;

/// Memory sizes in files are decimal: 40 GB is 40e9 bytes.
inline constexpr double bytes_per_gb = 1e9;

}  // namespace troupe
