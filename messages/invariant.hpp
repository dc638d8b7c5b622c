#pragma once

/// What the code around it keeps true whatever comes from outside. Checked in debug and sanitizer
/// builds (TROUPE_INVARIANTS); others do not evaluate it.
#ifdef TROUPE_INVARIANTS
#undef NDEBUG
#include <cassert>
#define TROUPE_INVARIANT(...) assert((__VA_ARGS__))
#else
#define TROUPE_INVARIANT(...) static_cast<void>(sizeof(!(__VA_ARGS__)))
#endif
