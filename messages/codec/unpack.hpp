#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "messages/codec/shape.hpp"

// The decoder. A bounded cursor instead of msgpack-c's visitor, which does not know the number of
// remaining bytes and so cannot reject invalid lengths before it reserves memory; bench/codec
// measures that this decodes whole structs in 0.4 to 0.9 of the time of an empty visitor.

namespace troupe::shape {

/// Decodes untrusted MessagePack. After an error every read returns false; `mistake` describes it,
/// and `position` is its offset. Recursion is limited by the types, not by the data.
class unpacker {
 public:
  explicit unpacker(std::span<const std::byte> bytes)
      : first_{reinterpret_cast<const std::uint8_t*>(bytes.data())},
        at_{first_},
        end_{first_ + bytes.size()} {}

  const char* mistake() const { return mistake_; }
  std::size_t position() const {
    return static_cast<std::size_t>((mistake_ ? token_ : at_) - first_);
  }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  /// True at the end of the bytes.
  bool at_end() {
    token_ = at_;
    return at_ == end_ || fail("bytes follow the end");
  }

  /// Reads the header of an array of exactly `size` elements.
  bool array(std::size_t size) {
    std::size_t found = 0;
    return count(found, array_family) && (found == size || fail("wrong number of fields"));
  }

  /// Reads the header of an array of any size.
  bool any_array() {
    std::size_t size = 0;
    return count(size, array_family);
  }
  bool any_array(std::size_t& size) { return count(size, array_family); }

  /// Always false.
  bool refuse(const char* mistake) { return fail(mistake); }

  /// Records from here on are as journals of versions 1 to 3 have them.
  void use_third_format() { third_format_ = true; }

  /// A variant's index and its alternative, without the header of their array.
  template <class T>
  bool unpack_alternative(T& value) {
    return unpack_alternative(value, std::make_index_sequence<std::variant_size_v<T>>());
  }

  template <class T>
  bool unpack(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      return unpack_bool(value);
    } else if constexpr (std::is_enum_v<T>) {
      return unpack_enum(value);
    } else if constexpr (is_integer<T>) {
      return unpack_integer(value);
    } else if constexpr (std::is_same_v<T, double>) {
      return unpack_double(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return unpack_string(value);
    } else if constexpr (is_vector<T>) {
      return unpack_vector(value);
    } else if constexpr (is_map<T>) {
      return unpack_map(value);
    } else if constexpr (is_optional<T>) {
      return unpack_optional(value);
    } else if constexpr (is_variant<T>) {
      return array(2) && unpack_alternative(value);
    } else {
      static_assert(record<T>, "unknown kind of field");
      return unpack_record(value);
    }
  }

 private:
  /// A family of formats with a length: in the first byte, or in the following 1, 2 or 4.
  struct family {
    std::uint8_t fixed, fixed_mask;  // 0x80, 0x0f: 0x80 to 0x8f contain a length of up to 15
    std::uint8_t one, two, four;     // first bytes; 0: no such form
    const char* otherwise;
  };
  static constexpr family array_family{0x90, 0x0f, 0, 0xdc, 0xdd, "expected an array"};
  static constexpr family map_family{0x80, 0x0f, 0, 0xde, 0xdf, "expected a map"};
  static constexpr family string_family{0xa0, 0x1f, 0xd9, 0xda, 0xdb, "expected a string"};

  [[gnu::cold]] bool fail(const char* mistake) {
    mistake_ = mistake;
    return false;
  }

  /// The first byte of the next value.
  bool token(std::uint8_t& byte) {
    token_ = at_;
    if (at_ == end_) return fail("the bytes end inside a value");
    byte = *at_++;
    return true;
  }

  template <class U>
  bool big_endian(U& value) {
    if (left() < sizeof(U)) return fail("the bytes end inside a value");
    value = 0;
    for (std::size_t i = 0; i < sizeof(U); ++i)
      value = static_cast<U>((std::uint64_t{value} << 8) | at_[i]);
    at_ += sizeof(U);
    return true;
  }

  template <class U>
  bool length(std::size_t& size) {
    U n = 0;
    if (!big_endian(n)) return false;
    size = n;
    return true;
  }

  bool count(std::size_t& size, const family& f) {
    std::uint8_t byte = 0;
    if (!token(byte)) return false;
    if ((byte & ~f.fixed_mask) == f.fixed) return size = byte & f.fixed_mask, true;
    if (byte == f.two) return length<std::uint16_t>(size);
    if (byte == f.four) return length<std::uint32_t>(size);
    if (byte == f.one && f.one != 0) return length<std::uint8_t>(size);
    return fail(f.otherwise);
  }

  /// Can `size` elements of at least `each` bytes be in the bytes that remain? Checked before any
  /// memory is reserved: a length of 4 GB costs its sender five bytes.
  bool believable(std::size_t size, std::size_t each) {
    return size <= left() / each || fail("length exceeds the remaining bytes");
  }

  template <record T>
  bool unpack_record(T& value) {
    if constexpr (has_third_format<T>)
      if (third_format_) return unpack_fields(value, value.fields_3(), std::size_t{T::required_3});
    return unpack_fields(value, value.fields(), required_fields<T>);
  }

  template <record T, class... Field>
  bool unpack_fields(T& value, std::tuple<Field&...> fields, std::size_t required) {
    std::size_t found = 0;
    if (!count(found, array_family)) return false;
    if (found > sizeof...(Field))
      return fail("more fields than this version knows: written by a newer one");
    if (found < required) return fail("fewer fields than required");
    if (found < sizeof...(Field)) value = T{};
    std::size_t next = 0;
    const auto read = [&](auto& field) {
      if (next++ >= found) return true;
      // Fields that had a nil for their default are plain ones now.
      if constexpr (!is_optional<std::remove_reference_t<decltype(field)>>)
        if (third_format_ && at_ != end_ && *at_ == 0xc0) return ++at_, true;
      return this->unpack(field);
    };
    return std::apply([&](auto&... field) { return (read(field) && ...); }, fields);
  }

  bool unpack_bool(bool& value) {
    std::uint8_t byte = 0;
    if (!token(byte)) return false;
    value = byte == 0xc3;
    return (byte & 0xfe) == 0xc2 || fail("expected a boolean");
  }

  // Most libraries write a whole number as an integer, and some write float 32 where that is exact.
  bool unpack_double(double& value) {
    std::uint8_t byte = 0;
    if (!token(byte)) return false;
    if (byte == float_64) return float_of<std::uint64_t>(value);
    if (byte == float_32) return float_of<std::uint32_t>(value);
    if (byte == unsigned_64) {
      std::uint64_t whole = 0;
      return big_endian(whole) && exactly(whole, 0x1p64, value);
    }
    std::int64_t whole = 0;
    return integer_of(byte, whole, "expected a number") && exactly(whole, 0x1p63, value);
  }

  /// `limit`: the first double that is too large for a T.
  template <class T>
  bool exactly(T whole, double limit, double& value) {
    value = static_cast<double>(whole);
    const bool same = value < limit && static_cast<T>(value) == whole;
    return same || fail("integer is not exact as a float 64");
  }

  static constexpr std::uint8_t float_32 = 0xca, float_64 = 0xcb, unsigned_64 = 0xcf;

  template <class Bits>
  bool float_of(double& value) {
    using wire = std::conditional_t<sizeof(Bits) == 8, double, float>;
    Bits bits = 0;
    if (!big_endian(bits)) return false;
    value = static_cast<double>(std::bit_cast<wire>(bits));
    return true;
  }

  // JavaScript has one kind of number: its libraries write whole ones beyond 32 bits as floats.
  template <class T>
  bool unpack_integer(T& value) {
    std::uint8_t byte = 0;
    if (!token(byte)) return false;
    if (byte != float_32 && byte != float_64) return integer_of(byte, value, "expected an integer");
    double number = 0;
    if (!(byte == float_64 ? float_of<std::uint64_t>(number) : float_of<std::uint32_t>(number)))
      return false;
    // From 2^53 on the sender may have had another number than the float that it wrote.
    constexpr double first_inexact = 0x1p53;
    if (!(std::abs(number) < first_inexact) || std::trunc(number) != number)
      return fail("expected an integer, found a float that is none exactly");
    return in_range(static_cast<std::int64_t>(number), value);
  }

  template <class T>
  bool integer_of(std::uint8_t byte, T& value, const char* otherwise) {
    if (byte <= 0x7f) return value = static_cast<T>(byte), true;
    if (byte >= 0xe0) return in_range(static_cast<std::int8_t>(byte), value);
    switch (byte) {
      case 0xcc:
        return sized_integer<std::uint8_t>(value);
      case 0xcd:
        return sized_integer<std::uint16_t>(value);
      case 0xce:
        return sized_integer<std::uint32_t>(value);
      case unsigned_64:
        return sized_integer<std::uint64_t>(value);
      case 0xd0:
        return sized_integer<std::int8_t>(value);
      case 0xd1:
        return sized_integer<std::int16_t>(value);
      case 0xd2:
        return sized_integer<std::int32_t>(value);
      case 0xd3:
        return sized_integer<std::int64_t>(value);
      default:
        return fail(otherwise);
    }
  }

  template <class Wire, class T>
  bool sized_integer(T& value) {
    std::make_unsigned_t<Wire> bits = 0;
    return big_endian(bits) && in_range(static_cast<Wire>(bits), value);
  }

  template <class Wire, class T>
  bool in_range(Wire found, T& value) {
    if (!std::in_range<T>(found)) return fail("integer out of the field's range");
    value = static_cast<T>(found);
    return true;
  }

  template <class E>
  bool unpack_enum(E& value) {
    static_assert(enum_count<E> > 0, "shape.hpp lacks its number of enumerators");
    std::uint64_t number = 0;
    if (!unpack_integer(number)) return false;
    if (number >= enum_count<E>) return fail("unknown enumerator");
    value = static_cast<E>(number);
    return true;
  }

  bool unpack_string(std::string& value) {
    std::size_t size = 0;
    if (!count(size, string_family) || !believable(size, 1)) return false;
    value.assign(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return true;
  }

  template <class T>
  bool unpack_vector(std::vector<T>& value) {
    std::size_t size = 0;
    if (!count(size, array_family) || !believable(size, min_bytes<T>())) return false;
    value.resize(size);
    for (auto& element : value)
      if (!unpack(element)) return false;
    return true;
  }

  template <class K, class V>
  bool unpack_map(std::map<K, V>& value) {
    std::size_t size = 0;
    if (!count(size, map_family) || !believable(size, min_bytes<K>() + min_bytes<V>()))
      return false;
    value.clear();
    for (; size > 0; --size) {
      K key{};
      const auto* const start = at_;
      if (!unpack(key)) return false;
      const auto [place, fresh] = value.try_emplace(std::move(key));
      if (!fresh) return token_ = start, fail("duplicate map key");
      if (!unpack(place->second)) return false;
    }
    return true;
  }

  template <class Optional>
  bool unpack_optional(Optional& value) {
    value.reset();
    if (at_ != end_ && *at_ == 0xc0) return ++at_, true;
    return unpack(value.emplace());
  }

  template <class... T, std::size_t... I>
  bool unpack_alternative(std::variant<T...>& value, std::index_sequence<I...>) {
    std::uint64_t index = 0;
    if (!unpack_integer(index)) return false;
    bool good = true;
    const bool known = ((index == I && (good = unpack(value.template emplace<I>()), true)) || ...);
    return known ? good : fail("unknown alternative");
  }

  bool third_format_ = false;
  const std::uint8_t *first_, *at_, *end_;
  const std::uint8_t* token_ = first_;  // start of the value being read
  const char* mistake_ = nullptr;
};

}  // namespace troupe::shape
