#include "actors/training/device/socket_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "gpu/files/directory_entries.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "troupe-worker-";
constexpr const char* in_memory = "/dev/shm";

/// Locks a folder of this user's; -1: another process has it, or it is something else.
descriptor lock_in(const fs::path& folder, int how) {
  struct stat about {};
  if (::lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) ||
      about.st_uid != ::geteuid())
    return {};
  descriptor lock{
      ::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | how, 0600)};
  if (lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) != 0) return {};
  return lock;
}

}  // namespace

socket_folder::socket_folder(std::string path, descriptor lock)
    : path_{std::move(path)}, lock_{std::move(lock)} {}

socket_folder::socket_folder(socket_folder&& other) noexcept
    : path_{std::exchange(other.path_, {})}, lock_{std::move(other.lock_)} {}

socket_folder::~socket_folder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

expected<socket_folder> socket_folder::make() {
  std::error_code error;
  const auto temporary = fs::temp_directory_path(error);
  if (error) return refuse(reason::kind::unavailable, "there is no folder for temporary files");
  return make_in(temporary.string());
}

expected<socket_folder> socket_folder::make_in_memory() {
  auto made = make_in(in_memory);
  return made ? std::move(made) : make();
}

expected<socket_folder> socket_folder::make_in(const std::string& folder) {
  auto name = folder + "/" + prefix + "XXXXXX";
  const auto failed = [&] {
    return refuse(reason::kind::unavailable, "{}: cannot be created", name);
  };
  if (::mkdtemp(name.data()) == nullptr) return failed();
  auto lock = lock_in(name, O_CREAT);
  if (lock < 0) return failed();
  return socket_folder{name, std::move(lock)};
}

// One without its lock is being made, or of an earlier release.
void remove_left_socket_folders() {
  std::error_code error, ignored;
  for (const fs::path& where : {fs::temp_directory_path(error), fs::path{in_memory}})
    for (const auto& entry : gpu::entries_of(where, error))
      if (entry.filename().string().starts_with(prefix) && lock_in(entry, 0) >= 0)
        fs::remove_all(entry, ignored);
}

}  // namespace troupe::actors
