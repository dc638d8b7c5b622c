#pragma once

#include <cstdio>
#include <cstdlib>

/// What the code around it keeps true whatever comes from outside. Checked in debug and sanitizer
/// builds (TROUPE_INVARIANTS); costs nothing in others, which do not evaluate it.
#ifdef TROUPE_INVARIANTS
#define TROUPE_INVARIANT(...)                                                                  \
  do {                                                                                         \
    if (!(__VA_ARGS__)) {                                                                      \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
      std::abort();                                                                            \
    }                                                                                          \
  } while (false)
#else
#define TROUPE_INVARIANT(...)     \
  do {                            \
    (void)sizeof(!(__VA_ARGS__)); \
  } while (false)
#endif
