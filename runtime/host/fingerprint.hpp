#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe::runtime {

/// An incremental 64-bit hash (XXH3) of everything that was added, in order.
class fingerprint {
 public:
  fingerprint();
  ~fingerprint();
  fingerprint(const fingerprint&) = delete;
  fingerprint& operator=(const fingerprint&) = delete;

  void add(std::span<const std::byte> bytes);
  void add(std::span<const std::uint64_t> words) { add(std::as_bytes(words)); }

  std::uint64_t value() const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace troupe::runtime
