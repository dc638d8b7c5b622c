#pragma once

#include <cstddef>

// Sums over GPUs that are members of a group: NCCL's, without its headers.

namespace troupe::gpu::cuda {

/// What is used of NCCL. The shared object fills the table from libnccl, tests fill it with their
/// own. Every function gives NCCL's result: 0 if all is well, 7 if it is under way. None blocks.
struct collectives {
  static constexpr int well = 0, under_way = 7;
  static constexpr std::size_t id_bytes = 128;

  int (*make_id)(void* id) = nullptr;
  int (*join)(void** member, int size, const void* id, int rank) = nullptr;
  /// How what this member was asked for last is going.
  int (*state)(void* member, int* now) = nullptr;
  /// In place, of 32-bit or 16-bit values; in the order of the stream.
  int (*sum)(void* member, void* values, std::size_t count, bool narrow, void* stream) = nullptr;
  /// The healthy end: finalize, then state until it is no longer under way, then destroy. Peers
  /// that are slower still get what this member's sums owe them.
  int (*finalize)(void* member) = nullptr;
  int (*destroy)(void* member) = nullptr;
  /// Ends the member and whatever it is at; kernels that wait for others come to an end.
  int (*abort)(void* member) = nullptr;
  const char* (*says)(int result) = nullptr;
};

}  // namespace troupe::gpu::cuda
