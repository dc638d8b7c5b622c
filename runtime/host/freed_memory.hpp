#pragma once

namespace troupe::runtime {

/// Memory freed from now on stays with the process, if it has jemalloc, until
/// return_freed_memory(). By default jemalloc 5.3 gives the pages of 16 MB back to the kernel with
/// each free, and asks for them again with the next allocation (of 4 MB it keeps them).
void keep_freed_memory();

/// Gives the pages of what was freed back to the kernel, whichever allocator the process has:
/// jemalloc as `troupe` (cli/CMakeLists.txt), or the C library's. Takes a moment.
void return_freed_memory();

}  // namespace troupe::runtime
