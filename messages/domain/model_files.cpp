#include "messages/domain/model_files.hpp"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/refuse.hpp"
#include "messages/base/untrusted_file.hpp"

namespace troupe {

// A decoder, its guests and its front must compute with the same weights, or completions are
// silently wrong. Reading all bytes of a large model takes as long as loading it; so the hash
// covers config.json, the names and sizes of all files of weights, the first 64 KiB of each (with
// the index of safetensors, which has every tensor's name, type and offset) and 64 samples of 4
// KiB. It finds another model, another checkpoint or a download that is incomplete. It does not
// resist a forger, and need not: the owner of the folder chooses the weights.
namespace {

constexpr std::uint64_t largest_config_bytes = 1 << 20;
constexpr std::uint64_t head_bytes = 64 << 10;  // an index is at a file's beginning
constexpr std::uint64_t samples = 64, sample_bytes = 4096;
constexpr std::size_t max_files = 4096;

// FNV-1a, 64 bits; never 0, which means unknown.
class fnv_hash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const auto b : bytes) add_byte(static_cast<std::uint8_t>(b));
  }
  void add(std::uint64_t n) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<std::uint8_t>(n >> shift));
  }
  std::uint64_t value() const { return value_ == 0 ? 1 : value_; }

 private:
  void add_byte(std::uint8_t b) { value_ = (value_ ^ b) * 0x100000001b3ULL; }

  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

struct closes {
  void operator()(DIR* d) const { ::closedir(d); }
};

expected<void> add_piece(fnv_hash& hash, const untrusted_file& file, std::uint64_t offset,
                         std::uint64_t bytes) {
  std::vector<std::byte> buffer(bytes);
  if (auto ok = file.read(offset, buffer); !ok) return ok;
  hash.add(buffer);
  return {};
}

expected<void> add_config(fnv_hash& hash, const std::string& path) {
  const auto text = read_file(path, largest_config_bytes);
  if (!text) return refuse(text.error());
  hash.add(std::as_bytes(std::span{*text}));
  return {};
}

expected<void> add_weights(fnv_hash& hash, const std::string& folder, const std::string& name) {
  hash.add(std::as_bytes(std::span{name}));
  const auto file = untrusted_file::open(folder + "/" + name);
  if (!file) return refuse(file.error());
  const auto size = file->size();
  hash.add(size);
  if (size <= head_bytes + samples * sample_bytes) return add_piece(hash, *file, 0, size);
  auto ok = add_piece(hash, *file, 0, head_bytes);
  const auto step = (size - head_bytes - sample_bytes) / (samples - 1);
  for (std::uint64_t i = 0; ok && i < samples; ++i)
    ok = add_piece(hash, *file, head_bytes + i * step, sample_bytes);
  return ok;
}

/// The names of the files of weights and of their index, sorted.
expected<std::vector<std::string>> weights_in(const std::string& folder) {
  const std::unique_ptr<DIR, closes> open{::opendir(folder.c_str())};
  if (!open)
    return refuse(reason::kind::unavailable, "{} cannot be read: {}", folder, std::strerror(errno));
  std::vector<std::string> names;
  while (const auto* entry = ::readdir(open.get())) {
    const std::string_view name{entry->d_name};
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"))
      names.emplace_back(name);
    if (names.size() > max_files)
      return refuse(reason::kind::invalid, "{} has more than {} files of weights", folder,
                    max_files);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

expected<std::uint64_t> hash_of_model_files(const served_model_files& m) {
  fnv_hash hash;
  if (auto ok = add_config(hash, m.folder + "/config.json"); !ok) return refuse(ok.error());
  if (m.random_weights) return hash.value();
  const auto weights = weights_in(m.folder);
  if (!weights) return refuse(weights.error());
  for (const auto& name : *weights)
    if (auto ok = add_weights(hash, m.folder, name); !ok) return refuse(ok.error());
  return hash.value();
}

// Before loading: the files may have changed since the job was submitted.
expected<void> check_model_files(const served_model_files& m) {
  if (m.hash == 0) return {};
  const auto now = hash_of_model_files(m);
  if (!now) return refuse(now.error());
  if (*now == m.hash) return {};
  return refuse(reason::kind::invalid,
                "{}: config.json or the weights are not those that the job was submitted with; "
                "cancel the job and submit it again to serve them",
                m.folder);
}

expected<std::uint64_t> hash_of_adapter_files(const std::string& folder) {
  fnv_hash hash;
  if (auto ok = add_config(hash, folder + "/adapter_config.json"); !ok) return refuse(ok.error());
  if (auto ok = add_weights(hash, folder, "adapter_model.safetensors"); !ok)
    return refuse(ok.error());
  return hash.value();
}

expected<void> check_adapter_files(const served_adapter& a) {
  if (a.hash == 0) return {};
  const auto now = hash_of_adapter_files(a.folder);
  if (!now) return refuse(now.error());
  if (*now == a.hash) return {};
  return refuse(reason::kind::invalid,
                "{}: found other files of adapter '{}' than when the job was submitted, expected "
                "the same; cancel the job and submit it again to serve them",
                a.folder, a.name);
}

}  // namespace troupe
