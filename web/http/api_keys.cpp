#include "web/http/api_keys.hpp"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace troupe::web {

expected<api_keys> api_keys::read(const std::filesystem::path& file, bool may_be_empty) {
  std::ifstream in{file};
  const auto failure = [&](std::string why) {
    return refuse(reason::kind::invalid, fmt::format("{}: {}", file.string(), why));
  };
  if (sodium_init() < 0) return failure("libsodium could not be initialized");
  if (!in) return failure(std::strerror(errno));
  api_keys keys;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    // Files that were edited on Windows.
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    const auto digits = line.substr(0, line.find(' '));
    hash h{};
    std::size_t bytes = 0;
    const char* end = nullptr;
    if (sodium_hex2bin(h.data(), h.size(), digits.data(), digits.size(), nullptr, &bytes, &end) !=
            0 ||
        bytes != h.size() || end != digits.data() + digits.size())
      return refuse(reason::kind::invalid,
                    fmt::format("{}:{}: expected the SHA-256 of a key, 64 hexadecimal digits",
                                file.string(), number));
    keys.hashes_.push_back(h);
  }
  if (keys.hashes_.empty() && !may_be_empty) return failure("has no keys");
  return keys;
}

bool api_keys::allows(std::string_view authorization) const {
  constexpr std::string_view scheme = "bearer ";  // schemes have no case (RFC 9110, 11.1)
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == static_cast<unsigned char>(b);
  };
  const auto begin = authorization.substr(0, scheme.size());
  if (!std::equal(begin.begin(), begin.end(), scheme.begin(), scheme.end(), same)) return false;
  auto key = authorization.substr(scheme.size());
  key.remove_prefix(std::min(key.find_first_not_of(' '), key.size()));
  hash h{};
  crypto_hash_sha256(h.data(), reinterpret_cast<const unsigned char*>(key.data()), key.size());
  bool found = false;
  // All hashes are compared, each in constant time: the duration shows neither which key matched
  // nor how much of it.
  for (const auto& known : hashes_) found |= sodium_memcmp(known.data(), h.data(), h.size()) == 0;
  return found;
}

}  // namespace troupe::web
