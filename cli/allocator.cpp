// jemalloc takes the place of the C library's allocator in the program (docs/dependencies.md).

/// Read by jemalloc at its start. Large tensors come and go: by default what is larger than 8 MB is
/// given back to the kernel at once, and its pages are asked for again with the next one.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "oversize_threshold:0";
}
