#include "cli/output/output_file.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

namespace troupe::cli {

namespace fs = std::filesystem;

namespace {

auto cannot_write(const std::string& path, const std::string& why) {
  return refuse(reason::kind::invalid, fmt::format("cannot write {}: {}", path, why));
}

}  // namespace

// Checked before hours of work, not after them; by opening, which finds every reason to fail.
expected<void> can_write(const std::string& file) {
  std::error_code error;
  const bool there = fs::exists(file, error);
  if (fs::is_directory(file, error)) return cannot_write(file, "is a directory");
  // Without O_TRUNC: an existing file stays as it is until there is a result. O_NONBLOCK: a FIFO
  // without a reader is refused instead of waited for.
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0) return cannot_write(file, std::strerror(errno));
  close(fd);
  if (!there) fs::remove(file, error);
  return {};
}

expected<void> can_write_into(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return cannot_write(directory, error.message());
  if (access(directory.c_str(), W_OK | X_OK) != 0)
    return cannot_write(directory, std::strerror(errno));
  return {};
}

temporary_directory::~temporary_directory() {
  std::error_code error;
  if (!path_.empty()) fs::remove_all(path_, error);
}

std::string temporary_directory::file(const std::string& name) {
  if (path_.empty()) {
    std::error_code error;
    auto pattern = (fs::temp_directory_path(error) / "troupe-XXXXXX").string();
    // Made at the first use: most runs need none.
    if (const char* made = error ? nullptr : mkdtemp(pattern.data())) path_ = made;
  }
  return path_.empty() ? "" : (fs::path{path_} / name).string();
}

}  // namespace troupe::cli
