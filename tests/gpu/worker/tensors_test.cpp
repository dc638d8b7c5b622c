#include "gpu/worker/tensors.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "gpu/worker/tensor_bytes.hpp"

namespace troupe::test {

using gpu::python::number_type;
using gpu::python::read_tensors;

namespace {

/// With another number of this type at a place.
template <class T>
std::vector<std::byte> with(std::vector<std::byte> bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

/// The error's text, or nothing.
std::string error_of(const std::vector<std::byte>& bytes) {
  const auto read = read_tensors(bytes);
  if (read) return {};
  CHECK(read.error().code == reason::kind::malformed);
  return read.error().text;
}

// Offsets in the bytes of a single tensor.
constexpr std::size_t count_at = 0, size_at = 8, type_at = 16, flags_at = 17, dimensions_at = 18,
                      sizes_at = 24;

}  // namespace

TEST_CASE("tensors of all types, with any dense strides, are read where they are") {
  const auto bytes = tensor_bytes(
      {{.sizes = {2, 3}, .strides = {1, 2}, .floats = {1, 2, 3, 4, 5, 6}},
       {.type = number_type::i64, .sizes = {5}, .strides = {1}, .wants_gradient = false},
       {.type = number_type::boolean, .sizes = {}, .strides = {}, .wants_gradient = false},
       {.type = number_type::bf16, .sizes = {4, 0, 3}, .strides = {9, 9, 9}},
       {.type = number_type::f16, .sizes = {1, 7, 1}, .strides = {100, 1, 3}}});
  const auto read = read_tensors(bytes);
  REQUIRE(read);
  REQUIRE(read->size() == 5);
  CHECK((*read)[0].sizes == std::vector<std::int64_t>{2, 3});
  CHECK((*read)[0].strides == std::vector<std::int64_t>{1, 2});
  CHECK((*read)[0].wants_gradient);
  CHECK_FALSE((*read)[1].wants_gradient);
  CHECK((*read)[0].data.size() == 24);
  CHECK((*read)[1].data.size() == 40);
  CHECK((*read)[2].data.size() == 1);
  CHECK((*read)[3].data.empty());
  CHECK((*read)[4].data.size() == 14);
  for (const auto& t : *read) CHECK((t.data.data() - bytes.data()) % 64 == 0);
}

TEST_CASE("no tensors are tensors") {
  const auto bytes = tensor_bytes({});
  CHECK(bytes.size() == 64);
  CHECK(read_tensors(bytes)->empty());
}

TEST_CASE("every number of a tensor's description is checked") {
  const auto good = tensor_bytes({{.sizes = {2, 3}, .strides = {3, 1}}});
  REQUIRE(error_of(good) == "");
  CHECK(error_of(with(good, count_at, std::uint32_t{257})) ==
        "tensors: found 257 of them, expected 256 at most");
  CHECK(error_of(with(good, count_at, std::uint32_t{200})) != "");
  CHECK(error_of(with(good, count_at, std::uint32_t{0})) ==
        "tensors: they end at 64, expected 128 bytes");
  CHECK(error_of(with(good, size_at, std::uint64_t{64})) ==
        "tensors: found 128 bytes, expected 64");
  CHECK(error_of(with(good, type_at, std::uint8_t{10})) ==
        "tensor 0: found type 10, expected 0 to 9");
  CHECK(error_of(with(good, flags_at, std::uint8_t{2})) ==
        "tensor 0: found flags 2, expected 0 or 1");
  CHECK(error_of(with(good, dimensions_at, std::uint8_t{17})) ==
        "tensor 0: found dimensions 17, expected 0 to 16");
  CHECK(error_of(with(good, dimensions_at, std::uint8_t{16})) ==
        "tensor 0: the bytes end within its description");
  CHECK(error_of(with(good, sizes_at, std::int64_t{-1})) ==
        "tensor 0: found size -1, expected 0 or more");
  CHECK(error_of(with(good, sizes_at + 16, std::int64_t{-3})) ==
        "tensor 0: found stride -3, expected 0 or more");
  CHECK(error_of(with(good, sizes_at, std::int64_t{1000})) ==
        "tensor 0: its data is larger than the 128 bytes");
  CHECK(error_of(with(good, sizes_at + 16, std::int64_t{4})) ==
        "tensor 0: its strides are not those of dense data");
}

TEST_CASE("sizes whose product is beyond all numbers are refused") {
  const auto max = std::numeric_limits<std::int64_t>::max();
  const auto good = tensor_bytes({{.sizes = {2, 3}, .strides = {3, 1}}});
  CHECK(error_of(with(with(good, sizes_at, max), sizes_at + 8, max)) ==
        "tensor 0: its data is larger than the 128 bytes");
  // 2^32 x 2^32 floats are 0 bytes modulo 2^64.
  const auto half = std::int64_t{1} << 32;
  CHECK(error_of(with(with(good, sizes_at, half), sizes_at + 8, half)) != "");
}

TEST_CASE("bytes that end anywhere before the tensors do are refused") {
  const auto good = tensor_bytes({{.sizes = {2}, .strides = {1}}, {.sizes = {}, .strides = {}}});
  for (std::size_t n = 0; n < good.size(); ++n) {
    std::vector<std::byte> cut{good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)};
    CHECK_FALSE(read_tensors(cut));
    if (n >= 16) CHECK_FALSE(read_tensors(with(cut, size_at, std::uint64_t{n})));
  }
}

}  // namespace troupe::test
