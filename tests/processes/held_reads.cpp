// Loaded before libc (LD_PRELOAD): this process's reads of files that are named $HELD_READS.json
// wait for as long as the file $HELD_READS.held exists, as on a slow disk.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

ssize_t held(int fd, void* to, std::size_t size, off64_t offset) {
  if (const char* path = std::getenv("HELD_READS")) {
    char link[64], name[4096];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const auto length = ::readlink(link, name, sizeof name);
    const std::string wanted = std::string{path} + ".json", mark = std::string{path} + ".held";
    if (length > 0 && std::string_view{name, static_cast<std::size_t>(length)} == wanted)
      while (::access(mark.c_str(), F_OK) == 0) ::poll(nullptr, 0, 50);
  }
  return ::syscall(SYS_pread64, fd, to, size, offset);
}

}  // namespace

extern "C" {

ssize_t pread(int fd, void* to, std::size_t size, off_t offset) {
  return held(fd, to, size, offset);
}

ssize_t pread64(int fd, void* to, std::size_t size, off64_t offset) {
  return held(fd, to, size, offset);
}

}  // extern "C"
