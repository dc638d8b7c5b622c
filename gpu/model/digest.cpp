#include "gpu/model/digest.hpp"

// Inlined from its header: a bundle for GPU machines needs no library of it.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace troupe::gpu {

std::uint64_t digest_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

operations::digest::result digest_of(const own_and_tied& weights) {
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (const auto* p : {&weights.own, &weights.tied})
    XXH3_64bits_update(&hash, p->bytes().data(), p->bytes().size());
  return {XXH3_64bits_digest(&hash)};
}

}  // namespace troupe::gpu
