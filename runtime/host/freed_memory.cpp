#include "runtime/host/freed_memory.hpp"

#include <malloc.h>

#include <cstddef>
#include <string>

/// jemalloc's, if the process has it.
extern "C" [[gnu::weak]] int mallctl(const char* name, void* old, std::size_t* old_bytes,
                                     void* value, std::size_t value_bytes);

namespace troupe::runtime {

void keep_freed_memory() {
  if (!mallctl) return;
  long never = -1;                                                           // ssize_t
  mallctl("arenas.dirty_decay_ms", nullptr, nullptr, &never, sizeof never);  // of new arenas
  unsigned arenas = 0;
  std::size_t bytes = sizeof arenas;
  mallctl("arenas.narenas", &arenas, &bytes, nullptr, 0);
  for (unsigned i = 0; i < arenas; ++i) {
    const auto name = "arena." + std::to_string(i) + ".dirty_decay_ms";
    mallctl(name.c_str(), nullptr, nullptr, &never, sizeof never);  // fails of one not in use
  }
}

void return_freed_memory() {
  if (mallctl)
    mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096: all arenas
  else
    ::malloc_trim(0);
}

}  // namespace troupe::runtime
