#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "messages/base/reason.hpp"

// The tensors that programs send between stages, as bytes: in a buffer of shared memory, and as the
// body of a message between nodes. docs/worker_protocol.md has the layout. Whoever wrote them may
// be hostile, and may change them while they are read: every number is read once, then checked.

namespace troupe::gpu::python {

enum class number_type : std::uint8_t { f32, f64, f16, bf16, i64, i32, i16, i8, u8, boolean };

struct tensor_view {
  number_type type = number_type::f32;
  bool wants_gradient = false;
  std::vector<std::int64_t> sizes, strides;  // strides in numbers, not in bytes
  std::span<const std::byte> data;           // dense: each number once, in the strides' order
};

inline constexpr std::size_t tensor_alignment = 64;
inline constexpr std::size_t max_tensors = 256, max_dimensions = 16;

constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + tensor_alignment - 1) / tensor_alignment * tensor_alignment;
}

std::size_t bytes_of(number_type t);

/// Fails (`malformed`) unless the bytes are exactly such tensors.
expected<std::vector<tensor_view>> read_tensors(std::span<const std::byte> bytes);

}  // namespace troupe::gpu::python
