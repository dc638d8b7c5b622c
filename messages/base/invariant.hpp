#pragma once

/// A condition that the surrounding code guarantees whatever its input. Checked in debug and
/// sanitizer builds (TROUPE_INVARIANTS); not evaluated in others.
#ifdef TROUPE_INVARIANTS
#undef NDEBUG
#include <cassert>
#define TROUPE_INVARIANT(...) assert((__VA_ARGS__))
#else
#define TROUPE_INVARIANT(...) static_cast<void>(sizeof(!(__VA_ARGS__)))
#endif
