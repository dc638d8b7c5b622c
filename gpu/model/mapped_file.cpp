#include "gpu/model/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace troupe::gpu {

expected<mapped_file> map_file(const std::filesystem::path& file) {
  const auto no = [&](const char* what) {
    return refuse(reason::kind::unavailable,
                  fmt::format("{} cannot be {}: {}", file.string(), what, std::strerror(errno)));
  };
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return no("opened");
  struct ::stat about {};
  if (::fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) {
    ::close(descriptor);
    return refuse(reason::kind::invalid, fmt::format("{} is not a file", file.string()));
  }
  const auto size = static_cast<std::size_t>(about.st_size);
  if (size == 0) {
    ::close(descriptor);
    return mapped_file{};
  }
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  ::close(descriptor);
  if (at == MAP_FAILED) return no("mapped");
  return mapped_file{{static_cast<const std::byte*>(at),
                      [size](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), size); }},
                     size};
}

}  // namespace troupe::gpu
