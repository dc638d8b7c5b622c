#include "web/openai/sha256.hpp"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "gpu/files/directory_entries.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/untrusted_file.hpp"

namespace troupe::web {

namespace {

namespace fs = std::filesystem;

class sha256_sum {
 public:
  sha256_sum() { crypto_hash_sha256_init(&state_); }

  void add(std::string_view bytes) {
    crypto_hash_sha256_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()),
                              bytes.size());
  }
  // A file may be larger than the memory.
  expected<void> add_file(const fs::path& path) {
    const auto file = untrusted_file::open(path.string());
    if (!file) return refuse(file.error());
    std::string block;
    constexpr std::uint64_t block_bytes = 1u << 20;
    for (std::uint64_t at = 0; at < file->size(); at += block.size()) {
      block.resize(std::min(block_bytes, file->size() - at));
      if (auto ok = file->read(at, std::as_writable_bytes(std::span{block})); !ok) return ok;
      add(block);
    }
    return {};
  }
  std::string digits() {
    std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
    crypto_hash_sha256_final(&state_, hash.data());
    std::string text(2 * hash.size() + 1, '\0');
    sodium_bin2hex(text.data(), text.size(), hash.data(), hash.size());
    text.pop_back();
    return text;
  }

 private:
  crypto_hash_sha256_state state_{};
};

}  // namespace

expected<std::string> sha256_of_files(const std::vector<fs::path>& files) {
  sha256_sum sum;
  for (const auto& f : files)
    if (auto ok = sum.add_file(f); !ok) return refuse(ok.error());
  return sum.digits();
}

expected<std::string> sha256_of_weights(const fs::path& folder) {
  std::error_code error;
  auto files = gpu::entries_of(folder, error);
  if (error) return refuse(reason::kind::unknown, "{}: {}", folder.string(), error.message());
  std::erase_if(files, [](const fs::path& f) { return f.extension() != ".safetensors"; });
  if (files.empty())
    return refuse(reason::kind::unknown, "{}: found no *.safetensors", folder.string());
  std::ranges::sort(files);
  sha256_sum sum;
  for (const auto& f : files) {
    sum.add(f.filename().string());
    sum.add(std::string_view{"\0", 1});
    if (auto ok = sum.add_file(f); !ok) return refuse(ok.error());
  }
  return sum.digits();
}

}  // namespace troupe::web
