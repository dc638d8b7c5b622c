#include "runtime/host/freed_memory.hpp"

#include <malloc.h>

#include <cstddef>

/// jemalloc's, if the process has it.
extern "C" [[gnu::weak]] int mallctl(const char* name, void* old, std::size_t* old_bytes,
                                     void* value, std::size_t value_bytes);

namespace troupe::runtime {

void return_freed_memory() {
  if (mallctl)
    mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096: all arenas
  else
    ::malloc_trim(0);
}

}  // namespace troupe::runtime
