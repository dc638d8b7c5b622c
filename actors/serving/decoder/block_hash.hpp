#pragma once

#include <cstdint>

#include "messages/wire/frame.hpp"
#include "runtime/host/fingerprint.hpp"

namespace troupe::actors {

/// prefill_block::hash of a body: XXH3; 0 only if it is empty.
inline std::uint64_t block_hash(const payload& body) {
  if (body.empty()) return 0;
  runtime::fingerprint hash;
  hash.add(body.bytes());
  return hash.value() == 0 ? 1 : hash.value();
}

}  // namespace troupe::actors
