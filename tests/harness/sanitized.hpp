#pragma once

namespace troupe::harness {

/// A sanitizer's bookkeeping takes several times the memory, and all of the address space.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace troupe::harness
