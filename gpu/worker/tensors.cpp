#include "gpu/worker/tensors.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "messages/base/refuse.hpp"

namespace troupe::gpu::python {

namespace {

/// Reads numbers one after another, each once.
class reader {
 public:
  explicit reader(std::span<const std::byte> from) : from_{from} {}

  /// False: there are fewer bytes.
  template <class T>
  bool take(T& value) {
    if (from_.size() - at_ < sizeof value) return false;
    std::memcpy(&value, from_.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }
  std::size_t at() const { return at_; }

 private:
  std::span<const std::byte> from_;
  std::size_t at_ = 0;
};

struct start {
  std::uint32_t count = 0, zero = 0;
  std::uint64_t bytes = 0;  // all of it, with the padding at its end
};

struct tensor_start {
  std::uint8_t type = 0, flags = 0, dimensions = 0, zero = 0;
  std::uint32_t zeros = 0;
};

auto malformed(std::size_t tensor, const char* what, std::int64_t found, const char* wanted) {
  return refuse(reason::kind::malformed, "tensor {}: found {} {}, expected {}", tensor, what, found,
                wanted);
}

/// The numbers of a tensor; none: more than any memory has.
std::optional<std::uint64_t> numbers_of(const std::vector<std::int64_t>& sizes) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
  constexpr std::uint64_t max = std::uint64_t{1} << 48;
  std::uint64_t all = 1;
  for (const auto size : sizes) {
    if (static_cast<std::uint64_t>(size) > max / all) return {};
    all *= static_cast<std::uint64_t>(size);
  }
  return all;
}

/// Is each number at a place of its own, without gaps? A dimension of size 1 may have any stride.
bool is_dense(const tensor_view& t) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < t.sizes.size(); ++d) {
    if (t.sizes[d] == 0) return true;
    if (t.sizes[d] > 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return t.strides[a] < t.strides[b]; });
  std::int64_t stride = 1;
  for (const auto d : order) {
    if (t.strides[d] != stride) return false;
    stride *= t.sizes[d];
  }
  return true;
}

/// All but the data.
expected<tensor_view> read_tensor(reader& from, std::size_t number) {
  constexpr auto cut_off = "tensor {}: the bytes end within its description";
  tensor_start s;
  if (!from.take(s)) return refuse(reason::kind::malformed, cut_off, number);
  if (s.type > static_cast<std::uint8_t>(number_type::boolean))
    return malformed(number, "type", s.type, "0 to 9");
  if (s.flags > 1) return malformed(number, "flags", s.flags, "0 or 1");
  if (s.dimensions > max_dimensions)
    return malformed(number, "dimensions", s.dimensions, "0 to 16");
  tensor_view t;
  t.type = static_cast<number_type>(s.type);
  t.wants_gradient = s.flags == 1;
  for (auto* numbers : {&t.sizes, &t.strides}) {
    for (std::size_t d = 0; d < s.dimensions; ++d) {
      std::int64_t n = 0;
      if (!from.take(n)) return refuse(reason::kind::malformed, cut_off, number);
      if (n < 0) return malformed(number, numbers == &t.sizes ? "size" : "stride", n, "0 or more");
      numbers->push_back(n);
    }
  }
  return t;
}

}  // namespace

std::size_t bytes_of(number_type t) {
  switch (t) {
    case number_type::f64:
    case number_type::i64:
      return 8;
    case number_type::f32:
    case number_type::i32:
      return 4;
    case number_type::f16:
    case number_type::bf16:
    case number_type::i16:
      return 2;
    case number_type::i8:
    case number_type::u8:
    case number_type::boolean:
      return 1;
  }
  return 1;
}

expected<std::vector<tensor_view>> read_tensors(std::span<const std::byte> bytes) {
  reader from{bytes};
  start s;
  if (!from.take(s) || s.bytes != bytes.size())
    return refuse(reason::kind::malformed, "tensors: found {} bytes, expected {}", bytes.size(),
                  s.bytes);
  if (s.count > max_tensors)
    return refuse(reason::kind::malformed, "tensors: found {} of them, expected {} at most",
                  s.count, max_tensors);
  std::vector<tensor_view> all;
  for (std::size_t i = 0; i < s.count; ++i) {
    auto t = read_tensor(from, i);
    if (!t) return refuse(t.error());
    all.push_back(std::move(*t));
  }
  std::uint64_t at = aligned(from.at());
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto& t = all[i];
    const auto numbers = numbers_of(t.sizes);
    if (!numbers || at > bytes.size() || *numbers * bytes_of(t.type) > bytes.size() - at)
      return refuse(reason::kind::malformed, "tensor {}: its data is larger than the {} bytes", i,
                    bytes.size());
    if (!is_dense(t))
      return refuse(reason::kind::malformed, "tensor {}: its strides are not those of dense data",
                    i);
    t.data = bytes.subspan(at, *numbers * bytes_of(t.type));
    at += aligned(t.data.size());
  }
  if (at != bytes.size())
    return refuse(reason::kind::malformed, "tensors: they end at {}, expected {} bytes", at,
                  bytes.size());
  return all;
}

}  // namespace troupe::gpu::python
