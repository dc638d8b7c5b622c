#include "messages/model_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_config_bytes = 1 << 20;
constexpr std::uint64_t head_bytes = 64 << 10;  // an index is at a file's beginning
constexpr std::uint64_t samples = 64, sample_bytes = 4096;
constexpr std::size_t most_files = 4096;

class fnv_hash {
 public:
  void add(const char* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      value_ = (value_ ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3ULL;
  }
  void add(std::uint64_t n) {
    for (int shift = 0; shift < 64; shift += 8) {
      const char byte = static_cast<char>(n >> shift);
      add(&byte, 1);
    }
  }
  std::uint64_t value() const { return value_ == 0 ? 1 : value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

/// A regular file that is open for reading.
class regular_file {
 public:
  explicit regular_file(const fs::path& path)
      : path_{path.string()}, fd_{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {}
  ~regular_file() {
    if (fd_ >= 0) ::close(fd_);
  }
  regular_file(const regular_file&) = delete;
  regular_file& operator=(const regular_file&) = delete;

  expected<std::uint64_t> size() const {
    struct ::stat about {};
    if (fd_ < 0 || ::fstat(fd_, &about) != 0) return no(std::strerror(errno));
    if (!S_ISREG(about.st_mode))
      return refuse(reason::kind::invalid, fmt::format("{} is not a regular file", path_));
    return static_cast<std::uint64_t>(about.st_size);
  }
  /// As many as there are.
  expected<void> add_to(fnv_hash& hash, std::uint64_t offset, std::uint64_t bytes) const {
    std::vector<char> buffer(bytes);
    std::uint64_t got = 0;
    while (got < bytes) {
      const auto n =
          ::pread(fd_, buffer.data() + got, bytes - got, static_cast<off_t>(offset + got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return no(std::strerror(errno));
      if (n == 0) break;
      got += static_cast<std::uint64_t>(n);
    }
    hash.add(buffer.data(), got);
    return {};
  }

 private:
  tl::unexpected<reason> no(const char* why) const {
    return refuse(reason::kind::unavailable, fmt::format("{} cannot be read: {}", path_, why));
  }

  std::string path_;
  int fd_ = -1;
};

expected<void> add_config(fnv_hash& hash, const fs::path& path) {
  const regular_file file{path};
  const auto size = file.size();
  if (!size) return refuse(size.error());
  if (*size > largest_config_bytes)
    return refuse(reason::kind::invalid, fmt::format("{} has {} bytes; at most {} are read",
                                                     path.string(), *size, largest_config_bytes));
  return file.add_to(hash, 0, *size);
}

expected<void> add_weights(fnv_hash& hash, const fs::path& path) {
  const auto name = path.filename().string();
  hash.add(name.data(), name.size());
  const regular_file file{path};
  const auto size = file.size();
  if (!size) return refuse(size.error());
  hash.add(*size);
  if (*size <= head_bytes + samples * sample_bytes) return file.add_to(hash, 0, *size);
  auto ok = file.add_to(hash, 0, head_bytes);
  const auto step = (*size - head_bytes - sample_bytes) / (samples - 1);
  for (std::uint64_t i = 0; ok && i < samples; ++i)
    ok = file.add_to(hash, head_bytes + i * step, sample_bytes);
  return ok;
}

}  // namespace

expected<std::uint64_t> hash_of_model_files(const served_model_files& m) {
  const fs::path folder{m.folder};
  fnv_hash hash;
  if (auto ok = add_config(hash, folder / "config.json"); !ok) return refuse(ok.error());
  if (m.random_weights) return hash.value();
  std::vector<fs::path> weights;
  std::error_code error;
  for (fs::directory_iterator at{folder, error}, end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"))
      weights.push_back(at->path());
    if (weights.size() > most_files)
      return refuse(reason::kind::invalid,
                    fmt::format("{} has more than {} files of weights", m.folder, most_files));
  }
  if (error)
    return refuse(reason::kind::unavailable,
                  fmt::format("{} cannot be read: {}", m.folder, error.message()));
  std::ranges::sort(weights);
  for (const auto& w : weights)
    if (auto ok = add_weights(hash, w); !ok) return refuse(ok.error());
  return hash.value();
}

expected<void> check_model_files(const served_model_files& m) {
  if (m.hash == 0) return {};
  const auto now = hash_of_model_files(m);
  if (!now) return refuse(now.error());
  if (*now == m.hash) return {};
  return refuse(reason::kind::invalid,
                fmt::format("{}: config.json or the weights are not those that the job was "
                            "submitted with; cancel the job and submit it again to serve them",
                            m.folder));
}

}  // namespace troupe
