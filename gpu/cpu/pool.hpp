#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "messages/wire/frame.hpp"

namespace troupe::gpu::cpu {

/// Reference-counted values.
template <class T>
using buffer = std::shared_ptr<T>;

/// Reusable memory aligned to 64 bytes: page faults of fresh memory cost more than using it.
/// Buffers may outlive the pool and may be released on any thread.
class pool {
 public:
  /// n uninitialized values.
  template <class T>
  buffer<T> take(std::size_t n) {
    const auto bytes = take_bytes(n * sizeof(T));
    return {bytes, reinterpret_cast<T*>(bytes.get())};
  }
  /// n zeros.
  template <class T>
  buffer<T> zeros(std::size_t n) {
    auto b = take<T>(n);
    std::fill_n(b.get(), n, T{});
    return b;
  }

 private:
  struct free_list {
    ~free_list();
    std::mutex guard;
    std::multimap<std::size_t, std::byte*> blocks;  // by size
  };
  std::shared_ptr<std::byte> take_bytes(std::size_t bytes);

  std::shared_ptr<free_list> free_ = std::make_shared<free_list>();
};

/// A buffer's n values as a payload, without a copy.
template <class T>
payload as_payload(const buffer<T>& b, std::size_t n) {
  return payload{b, std::as_bytes(std::span<const T>{b.get(), n})};
}

/// A payload's values; copied only if they are not aligned to 64 bytes, on which the order of sums
/// may depend.
template <class T>
buffer<const T> values_of(const payload& p, pool& memory) {
  const auto bytes = p.bytes();
  const auto* first = bytes.data();
  if (reinterpret_cast<std::uintptr_t>(first) % 64 == 0)
    return {p.owner(), reinterpret_cast<const T*>(first)};
  auto copy = memory.take<T>(bytes.size() / sizeof(T));
  std::memcpy(copy.get(), first, bytes.size());
  return copy;
}

}  // namespace troupe::gpu::cpu
