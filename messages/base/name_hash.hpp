#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// FNV-1a: gives what has a name a random generator of its own, on every machine the same.
constexpr std::uint64_t hash_of_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace troupe
