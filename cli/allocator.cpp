// jemalloc takes the place of the C library's allocator in the program (docs/dependencies.md).

/// Read by jemalloc at its start. Large tensors come and go: by default jemalloc 5.3 gives the
/// pages of 16 MB back to the kernel with each free (of 4 MB it keeps them), and
/// `oversize_threshold:0` does not change that. What was used once stays with the process, as in
/// keep_memory() (runtime/zeromq/engine.cpp), until return_freed_memory().
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "dirty_decay_ms:-1";
}
