#pragma once

#include "messages/wire/frame.hpp"

namespace troupe::harness {

inline std::byte pattern_byte(std::size_t place) {
  return static_cast<std::byte>(place * 0x9e3779b9U >> 15);
}

/// A body whose bytes depend on their places, so that exchanged and missing pieces show.
inline payload pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = pattern_byte(i);
  return payload{std::move(bytes)};
}
inline bool is_pattern(const payload& p) {
  const auto bytes = p.bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != pattern_byte(i)) return false;
  return true;
}

}  // namespace troupe::harness
