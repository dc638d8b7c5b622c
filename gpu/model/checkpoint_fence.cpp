#include "gpu/model/checkpoint_fence.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "gpu/device/clock.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

constexpr double patience_s = 10;  // for the lock, whose holder writes only a small file

/// The locked fence file.
class fence {
 public:
  explicit fence(const fs::path& root) : file_{root / "fence"} {}
  ~fence() {
    if (fd_ >= 0) ::close(fd_);
  }
  fence(const fence&) = delete;

  expected<void> open() {
    fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) return no("opened");
    const double until_s = now_s() + patience_s;
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return no("locked");
      if (now_s() > until_s)
        return refuse(reason::kind::unavailable,
                      fmt::format("{} is locked by another process", file_.string()));
      ::usleep(10'000);
    }
    char text[24] = {};
    if (::pread(fd_, text, sizeof text - 1, 0) < 0) return no("read");
    newest_ = std::strtoull(text, nullptr, 10);
    return {};
  }

  expected<void> allows(std::uint64_t lease) const {
    if (lease >= newest_) return {};
    return refuse(reason::kind::stale,
                  fmt::format("lease {} has taken over {}: lease {} may no longer write", newest_,
                              file_.parent_path().string(), lease));
  }

  /// A single write of constant size, so that it is atomic.
  expected<void> set(std::uint64_t lease) {
    if (lease == newest_) return {};
    const auto text = fmt::format("{:020}\n", lease);
    if (::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
        ::fsync(fd_) != 0)
      return no("written");
    return {};
  }

 private:
  tl::unexpected<reason> no(const char* what) const {
    return refuse(reason::kind::unavailable,
                  fmt::format("{} cannot be {}: {}", file_.string(), what, std::strerror(errno)));
  }

  fs::path file_;
  int fd_ = -1;
  std::uint64_t newest_ = 0;
};

}  // namespace

expected<void> take_fence(const fs::path& root, std::uint64_t lease) {
  std::error_code failed;
  fs::create_directories(root, failed);
  if (failed)
    return refuse(reason::kind::unavailable,
                  fmt::format("{} cannot be created: {}", root.string(), failed.message()));
  fence f{root};
  if (auto ok = f.open(); !ok) return ok;
  if (auto ok = f.allows(lease); !ok) return ok;
  return f.set(lease);
}

expected<void> check_fence(const fs::path& root, std::uint64_t lease) {
  return write_fenced(root, lease, [] { return expected<void>{}; });
}

expected<void> write_fenced(const fs::path& root, std::uint64_t lease,
                            const std::function<expected<void>()>& write) {
  fence f{root};
  if (auto ok = f.open(); !ok) return ok;
  if (auto ok = f.allows(lease); !ok) return ok;
  return write();
}

}  // namespace troupe::gpu
