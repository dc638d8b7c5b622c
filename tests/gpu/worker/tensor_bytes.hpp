#pragma once

#include <cstdint>
#include <vector>

#include "gpu/worker/tensors.hpp"
#include "messages/wire/frame.hpp"

namespace troupe::test {

/// A tensor to be written; its data is zero if `floats` is empty.
struct written_tensor {
  gpu::python::number_type type = gpu::python::number_type::f32;
  std::vector<std::int64_t> sizes, strides;
  std::vector<float> floats{};
  bool wants_gradient = true;
};

/// Tensors as the protocol has them.
std::vector<std::byte> tensor_bytes(const std::vector<written_tensor>& tensors);
/// One tensor with one dimension.
payload vector_payload(const std::vector<float>& values);
/// The numbers of such a payload.
std::vector<float> vector_of(const payload& p);

}  // namespace troupe::test
