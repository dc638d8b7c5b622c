#include "messages/base/invariant.hpp"

#include <cstdio>
#include <cstdlib>

namespace troupe {

// An abort, and not an exception: no handler may go on, and no destructor may write to the journal
// or send what the wrong data leads to. What the journal has is durable.
void end_with_broken_invariant(const char* sentence, const char* condition) noexcept {
  std::fprintf(stderr, "troupe: broken invariant: %s (%s)\n", sentence, condition);
  std::fflush(nullptr);
  std::abort();
}

bool checks_slow_invariants() {
#ifdef TROUPE_CHECKED
  return true;
#else
  return false;
#endif
}

}  // namespace troupe
