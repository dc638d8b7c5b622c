#include "gpu/worker/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>

#include "messages/base/refuse.hpp"

namespace troupe::gpu::python {

// The pages are allocated before the memory is mapped: too little room is an error here, and not a
// fault at some later access.
expected<std::shared_ptr<shared_memory>> shared_memory::make(std::uint64_t bytes) {
  const auto failed = [&] {
    return refuse(reason::kind::out_of_memory, "{} bytes of shared memory cannot be had: {}", bytes,
                  std::strerror(errno));
  };
  descriptor file{::memfd_create("troupe-worker", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (file < 0) return failed();
  if (const int error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes)); error != 0) {
    errno = error;
    return failed();
  }
  if (::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return failed();
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (at == MAP_FAILED) return failed();
  return std::shared_ptr<shared_memory>{
      new shared_memory{std::move(file), {static_cast<std::byte*>(at), bytes}}};
}

shared_memory::~shared_memory() {
  ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace troupe::gpu::python
