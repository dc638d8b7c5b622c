#pragma once

#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::web {

/// Keys that may use the API; only their hashes are known.
class api_keys {
 public:
  /// A file with a line for each key: its SHA-256 in 64 hexadecimal digits, then anything after a
  /// space. Empty lines and lines that begin with # are skipped. Fails with file and line for
  /// others, and if there is no key, unless `may_be_empty`.
  static expected<api_keys> read(const std::filesystem::path& file, bool may_be_empty = false);

  bool empty() const { return hashes_.empty(); }

  /// An "Authorization" header: "Bearer KEY" with one of the keys? The time does not depend on how
  /// much of a hash agrees.
  bool allows(std::string_view authorization) const;

 private:
  using hash = std::array<unsigned char, 32>;
  std::vector<hash> hashes_;
};

}  // namespace troupe::web
