#pragma once

namespace troupe::runtime {

/// Gives the pages of what was freed back to the kernel, whichever allocator the process has:
/// jemalloc as `troupe` (cli/allocator.cpp), or the C library's. Takes a moment.
void return_freed_memory();

}  // namespace troupe::runtime
