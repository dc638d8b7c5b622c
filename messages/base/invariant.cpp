#include "messages/base/invariant.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace troupe {

// An abort, and not an exception: no handler may go on, and no destructor may write to the journal
// or send what the wrong data leads to. What the journal has is durable.
void end_with_broken_invariant(const char* sentence, const char* condition) noexcept {
  const auto text = std::string{"troupe: broken invariant: "} + sentence + " (" + condition + ")\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
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
