#include "runtime/host/fingerprint.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace troupe::runtime {

// XXH3: fingerprints compare runs and need no resistance to forgers. Inlined from its header, so
// that users of fingerprint.hpp do not need it.
struct fingerprint::state {
  XXH3_state_t hash;
};

fingerprint::fingerprint() : state_{std::make_unique<state>()} {
  XXH3_64bits_reset(&state_->hash);
}
fingerprint::~fingerprint() = default;

void fingerprint::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->hash, bytes.data(), bytes.size());
}

std::uint64_t fingerprint::value() const {
  return XXH3_64bits_digest(&state_->hash);
}

}  // namespace troupe::runtime
