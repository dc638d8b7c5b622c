#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>

#include "messages/wire/frame.hpp"

// The values of simulated tensors. A simulated tensor has no bytes, so that its transfer takes only
// the time of its size; its payload owns a number instead, its digest, that depends on everything
// that the values would depend on. It goes wherever the payload goes within a process, and is no
// part of any frame's size: it changes no simulated time. Virtual worlds compare digests with those
// of undisturbed trainings (tests/simulation/undisturbed.hpp).

namespace troupe::gpu {

/// Marks the owner of a digest: any other payload without bytes has an owner of another kind.
struct digest_owner {
  void operator()(const std::uint64_t* digest) const { delete digest; }
};

inline payload simulated_tensor(std::uint64_t digest) {
  return payload{
      std::shared_ptr<const std::uint64_t>{new const std::uint64_t{digest}, digest_owner{}}, {}};
}

/// None: it is a tensor with bytes, or its digest has left the process.
inline std::optional<std::uint64_t> digest_in(const payload& p) {
  if (!p.owner() || !p.bytes().empty() || !std::get_deleter<digest_owner>(p.owner())) return {};
  return *static_cast<const std::uint64_t*>(p.owner().get());
}

/// Depends on each number and on their order.
constexpr std::uint64_t hash_of(std::initializer_list<std::uint64_t> numbers) {
  std::uint64_t h = 0;
  for (const auto n : numbers) {  // splitmix64's step and its finalizer
    h = (h ^ n) + 0x9e3779b97f4a7c15;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
    h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
    h ^= h >> 31;
  }
  return h;
}

/// The digest of a sum: as of floating point numbers, a + b is b + a, and (a + b) + c is not
/// a + (b + c).
constexpr std::uint64_t sum_of_digests(std::uint64_t a, std::uint64_t b) {
  return hash_of({a ^ b, a + b});
}

}  // namespace troupe::gpu
