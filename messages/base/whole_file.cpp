#include "messages/base/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "messages/base/descriptor.hpp"
#include "messages/base/refuse.hpp"

namespace troupe {

namespace {

class open_file {
 public:
  open_file(const char* path, int flags, unsigned mode = 0)
      : descriptor_{::open(path, flags | O_CLOEXEC, mode)} {}

  bool good() const { return descriptor_ >= 0; }
  bool is_regular() const {
    struct stat s {};
    if (!good() || ::fstat(descriptor_, &s) != 0) return false;
    if (!S_ISREG(s.st_mode)) errno = EEXIST;
    return S_ISREG(s.st_mode);
  }
  // open() applies the umask, and leaves the mode of a file that was there.
  bool set_mode(unsigned mode) const { return ::fchmod(descriptor_, mode) == 0; }
  bool sync() const { return ::fsync(descriptor_) == 0; }
  bool write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const auto n = ::write(descriptor_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }

 private:
  descriptor descriptor_;
};

std::string directory_of(const std::string& file) {
  const auto slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash + 1);
}

bool write_and_sync(const std::string& file, const std::function<bool(const byte_sink&)>& write_to,
                    std::optional<unsigned> mode) {
  // Where untrusted programs may write, it may be a fifo.
  const open_file out{file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK,
                      mode.value_or(0666)};
  if (!out.is_regular() || (mode && !out.set_mode(*mode))) return false;
  return write_to([&](auto bytes) { return out.write(bytes); }) && out.sync();
}

}  // namespace

// Write a new file, sync it, rename it over the old one, sync the directory: after a crash or a
// power cut one of the two files is there, complete. Without the first sync the rename may reach
// the disk before the contents.
expected<void> write_whole_file(const std::string& file,
                                const std::function<bool(const byte_sink&)>& write_to,
                                std::optional<unsigned> mode) {
  const auto fresh = file + ".new";
  if (!write_and_sync(fresh, write_to, mode) || ::rename(fresh.c_str(), file.c_str()) != 0) {
    const int why = errno;
    ::unlink(fresh.c_str());
    return refuse(reason::kind::unavailable, "{}: cannot be written: {}", file, std::strerror(why));
  }
  // The new name, too. Some file systems cannot: then they have done what they can.
  if (const open_file directory{directory_of(file).c_str(), O_RDONLY | O_DIRECTORY};
      directory.good())
    (void)directory.sync();
  return {};
}

expected<void> write_whole_file(const std::string& file,
                                const std::vector<std::span<const std::byte>>& parts,
                                std::optional<unsigned> mode) {
  const auto all = [&](const byte_sink& to) { return std::ranges::all_of(parts, to); };
  return write_whole_file(file, all, mode);
}

expected<void> write_whole_file(const std::string& file, const std::string& text,
                                std::optional<unsigned> mode) {
  return write_whole_file(file, {std::as_bytes(std::span{text})}, mode);
}

}  // namespace troupe
