#include "gpu/model/checkpoint_fence.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "gpu/device/clock.hpp"
#include "messages/base/descriptor.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

constexpr double patience_s = 10;  // for the lock, whose holder writes only a small file

/// The locked fence file.
class fence {
 public:
  explicit fence(const fs::path& root) : file_{root / "fence"} {}

  // A link is refused and a fifo does not block: a job's programs may write in the directory.
  // flock() has no time limit, so the lock is polled; closing the file releases it, also when the
  // process dies.
  expected<void> open() {
    fd_ = descriptor{
        ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644)};
    if (fd_ < 0) return failure("opened");
    struct stat about {};
    if (::fstat(fd_, &about) != 0 || !S_ISREG(about.st_mode))
      return refuse(reason::kind::invalid, "{} is not a regular file", file_.string());
    const double until_s = now_s() + patience_s;
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return failure("locked");
      if (now_s() > until_s)
        return refuse(reason::kind::unavailable, "{} is locked by another process", file_.string());
      ::usleep(10'000);
    }
    char text[24] = {};
    if (::pread(fd_, text, sizeof text - 1, 0) < 0) return failure("read");
    return read(text);
  }

  // Leases grow, so a larger number in the file means that a newer training owns the directory.
  expected<void> allows(std::uint64_t lease) const {
    if (lease >= newest_) return {};
    return refuse(reason::kind::stale,
                  "lease {} has taken over {}: lease {} may no longer write; if no other training, "
                  "of this cluster or another, uses the directory, remove {}",
                  newest_, file_.parent_path().string(), lease, file_.string());
  }

  /// A single write of constant size, so that it is atomic.
  expected<void> set(std::uint64_t lease) {
    if (lease == newest_) return {};
    const auto text = fmt::format("{:020}\n", lease);
    if (::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
        ::fsync(fd_) != 0)
      return failure("written");
    return {};
  }

 private:
  /// A lease's number is below 2^63. A file that has no number at its beginning is replaced.
  expected<void> read(std::string_view text) {
    const auto end = std::min(text.find_first_not_of("0123456789"), text.size());
    constexpr auto largest = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    const auto [at, wrong] = std::from_chars(text.data(), text.data() + end, newest_);
    if (end > 0 && (wrong != std::errc{} || newest_ > largest))
      return refuse(reason::kind::malformed,
                    "{}: found lease '{}', expected at most {}: remove the file if no training "
                    "uses this directory",
                    file_.string(), text.substr(0, end), largest);
    return {};
  }

  tl::unexpected<reason> failure(const char* what) const {
    return refuse(reason::kind::unavailable, "{} cannot be {}: {}", file_.string(), what,
                  std::strerror(errno));
  }

  fs::path file_;
  descriptor fd_;
  std::uint64_t newest_ = 0;
};

}  // namespace

/// An older lease than that of the file fails; the file never goes back to a smaller number.
expected<void> take_fence(const fs::path& root, std::uint64_t lease) {
  std::error_code failed;
  fs::create_directories(root, failed);
  if (failed)
    return refuse(reason::kind::unavailable, "{} cannot be created: {}", root.string(),
                  failed.message());
  fence f{root};
  if (auto ok = f.open(); !ok) return ok;
  if (auto ok = f.allows(lease); !ok) return ok;
  return f.set(lease);
}

expected<void> check_fence(const fs::path& root, std::uint64_t lease) {
  return write_fenced(root, lease, [] { return expected<void>{}; });
}

/// The lock is held over the check and the write: a newer lease cannot be taken in between, so no
/// write of an older lease comes after it.
expected<void> write_fenced(const fs::path& root, std::uint64_t lease,
                            const std::function<expected<void>()>& write) {
  fence f{root};
  if (auto ok = f.open(); !ok) return ok;
  if (auto ok = f.allows(lease); !ok) return ok;
  return write();
}

}  // namespace troupe::gpu
