#pragma once

#include <cstddef>

// All-reduces over a group of GPUs: NCCL's functions, without its headers.

namespace troupe::gpu::cuda {

/// The used functions of NCCL. The shared object fills the table from libnccl, tests with their
/// own. Every function returns NCCL's result: 0 success, 7 in progress. None blocks.
struct collectives {
  static constexpr int well = 0, under_way = 7;
  static constexpr std::size_t id_bytes = 128;

  int (*make_id)(void* id) = nullptr;
  int (*join)(void** member, int size, const void* id, int rank) = nullptr;
  /// The state of this member's last call.
  int (*state)(void* member, int* now) = nullptr;
  /// In place, of 32-bit or 16-bit values; ordered by the stream.
  int (*sum)(void* member, void* values, std::size_t count, bool narrow, void* stream) = nullptr;
  /// A normal end: finalize, then state until it is no longer in progress, then destroy. Slower
  /// peers still get this member's data.
  int (*finalize)(void* member) = nullptr;
  int (*destroy)(void* member) = nullptr;
  /// Aborts the member's operations; kernels that wait for other members end.
  int (*abort)(void* member) = nullptr;
  const char* (*text_of)(int result) = nullptr;
};

}  // namespace troupe::gpu::cuda
