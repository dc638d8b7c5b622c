#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <msgpack/pack.hpp>

#include "messages/codec/shape.hpp"

// Encodes any value of the messages as MessagePack: records are arrays of their fields.

namespace troupe::shape {

/// The packer's output buffer, which is reused and so rarely grows.
class sink {
 public:
  // Inlined, so that MessagePack's copies of a few bytes have constant sizes.
  [[gnu::always_inline]] void write(const char* bytes, std::size_t size) {
    if (size > buffer_.size() - used_) [[unlikely]]
      grow(size);
    std::memcpy(buffer_.data() + used_, bytes, size);
    used_ += size;
  }
  const std::byte* data() const { return buffer_.data(); }
  std::size_t size() const { return used_; }

  /// Empties it, and frees the memory of an unusually large message.
  void clear() {
    used_ = 0;
    if (buffer_.size() > kept_bytes) std::vector<std::byte>(kept_bytes).swap(buffer_);
  }

 private:
  static constexpr std::size_t kept_bytes = std::size_t{1} << 20;
  [[gnu::noinline]] void grow(std::size_t size) {
    buffer_.resize(std::max({buffer_.size() * 2, used_ + size, std::size_t{4096}}));
  }
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;
};

class packer {
 public:
  explicit packer(sink& out) : out_{out}, packer_{out} {}

  void array(std::size_t size) { packer_.pack_array(static_cast<std::uint32_t>(size)); }

  template <class T>
  void pack(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value ? packer_.pack_true() : packer_.pack_false();
    } else if constexpr (std::is_enum_v<T>) {
      packer_.pack_uint64(static_cast<std::uint64_t>(value));
    } else if constexpr (std::is_unsigned_v<T>) {
      packer_.pack_uint64(value);
    } else if constexpr (is_integer<T>) {
      packer_.pack_int64(value);
    } else if constexpr (std::is_same_v<T, double>) {
      pack_double(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      packer_.pack_str(static_cast<std::uint32_t>(value.size()));
      packer_.pack_str_body(value.data(), static_cast<std::uint32_t>(value.size()));
    } else if constexpr (is_vector<T>) {
      array(value.size());
      for (const auto& element : value) pack(element);
    } else if constexpr (is_map<T>) {
      packer_.pack_map(static_cast<std::uint32_t>(value.size()));
      for (const auto& [key, element] : value) pack(key), pack(element);
    } else if constexpr (is_optional<T>) {
      value ? pack(*value) : static_cast<void>(packer_.pack_nil());
    } else if constexpr (is_variant<T>) {
      array(2);
      packer_.pack_uint64(value.index());
      std::visit([this](const auto& alternative) { this->pack(alternative); }, value);
    } else {
      static_assert(record<T>, "no such kind of field on the wire");
      auto left = written_fields(value);
      array(left);
      all_fields(value, [&](const auto& field) { return left-- > 0 && (this->pack(field), true); });
    }
  }

 private:
  /// Trailing nils are omitted: added fields that are not used cost nothing.
  template <record T, std::size_t I = field_count<T>>
  static std::size_t written_fields(const T& value) {
    if constexpr (I > required_fields<T>) {
      if constexpr (is_optional<field_type<T, I - 1>>)
        if (!std::get<I - 1>(value.fields())) return written_fields<T, I - 1>(value);
    }
    return I;
  }

  // msgpack-c would encode 3.0 as the integer 3 and lose the sign of -0.0; on the wire a double is
  // always a float 64, bit for bit.
  void pack_double(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    char bytes[9] = {static_cast<char>(0xcb)};
    for (int i = 0; i < 8; ++i) bytes[1 + i] = static_cast<char>(bits >> (56 - 8 * i));
    out_.write(bytes, sizeof bytes);
  }

  sink& out_;
  msgpack::packer<sink> packer_;
};

}  // namespace troupe::shape
