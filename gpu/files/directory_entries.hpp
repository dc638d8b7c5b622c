#pragma once

#include <cstddef>
#include <filesystem>
#include <system_error>
#include <vector>

namespace troupe::gpu {

/// The entries of a directory, in any order; at most a million, since whoever may write there may
/// make any number. A range-for over a directory_iterator would throw where reading it fails.
inline std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory,
                                                     std::error_code& error) {
  constexpr std::size_t max_entries = 1'000'000;
  std::vector<std::filesystem::path> entries;
  std::filesystem::directory_iterator at{directory, error};
  const std::filesystem::directory_iterator end;
  while (!error && at != end && entries.size() < max_entries) {
    entries.push_back(at->path());
    at.increment(error);
  }
  return entries;
}

}  // namespace troupe::gpu
