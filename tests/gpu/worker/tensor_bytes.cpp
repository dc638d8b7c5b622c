#include "gpu/worker/tensor_bytes.hpp"

#include <cstring>
#include <stdexcept>

namespace troupe::test {

namespace {

template <class T>
void append(std::vector<std::byte>& to, T value) {
  const auto at = to.size();
  to.resize(at + sizeof value);
  std::memcpy(to.data() + at, &value, sizeof value);
}

}  // namespace

std::vector<std::byte> tensor_bytes(const std::vector<written_tensor>& tensors) {
  std::vector<std::byte> all;
  append(all, static_cast<std::uint32_t>(tensors.size()));
  append(all, std::uint32_t{0});
  append(all, std::uint64_t{0});
  for (const auto& t : tensors) {
    append(all, static_cast<std::uint8_t>(t.type));
    append(all, static_cast<std::uint8_t>(t.wants_gradient));
    append(all, static_cast<std::uint8_t>(t.sizes.size()));
    append(all, std::uint8_t{0});
    append(all, std::uint32_t{0});
    for (const auto n : t.sizes) append(all, n);
    for (const auto n : t.strides) append(all, n);
  }
  all.resize(gpu::python::aligned(all.size()));
  for (const auto& t : tensors) {
    std::size_t numbers = 1;
    for (const auto n : t.sizes) numbers *= static_cast<std::size_t>(n);
    const auto at = all.size();
    all.resize(at + gpu::python::aligned(numbers * gpu::python::bytes_of(t.type)));
    if (!t.floats.empty())
      std::memcpy(all.data() + at, t.floats.data(), t.floats.size() * sizeof(float));
  }
  const std::uint64_t size = all.size();
  std::memcpy(all.data() + 8, &size, sizeof size);
  return all;
}

payload vector_payload(const std::vector<float>& values) {
  return payload{tensor_bytes(
      {{.sizes = {static_cast<std::int64_t>(values.size())}, .strides = {1}, .floats = values}})};
}

std::vector<float> vector_of(const payload& p) {
  const auto read = gpu::python::read_tensors(p.bytes());
  if (!read || read->size() != 1) throw std::runtime_error{"not one tensor"};
  return payload{nullptr, read->front().data}.values<float>();
}

}  // namespace troupe::test
