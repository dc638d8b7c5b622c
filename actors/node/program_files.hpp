#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "messages/units.hpp"

namespace troupe::actors {

/// What a program says of itself in the file that $TROUPE_REPORT names.
struct program_report {
  std::uint64_t iterations = 0;
  double peak_bytes = 0;
};

/// Lines of "key: number"; the last of a key counts. What is no number, or none that can be, is
/// passed over.
program_report parse_program_report(std::string_view text);

/// Its last few KB, or nothing: whatever stands at that path, this takes no time.
program_report read_program_report(const std::string& path);

/// Where a node keeps the output and the report of each lease: a directory for every attempt, named
/// by the lease and this start of the node, so that those of an earlier cluster are not mistaken
/// for it.
class program_files {
 public:
  program_files() = default;
  program_files(std::filesystem::path logs, std::uint64_t incarnation)
      : logs_{std::move(logs)}, incarnation_{incarnation} {}

  /// A new attempt's directory.
  std::error_code make(lease_id lease) const;
  std::string log(lease_id lease) const { return (directory(lease) / "output.log").string(); }
  std::string report(lease_id lease) const { return (directory(lease) / "report").string(); }

  /// The log of the newest attempt, also of an earlier start's; empty: there is none.
  std::string newest_log(lease_id lease) const;

 private:
  std::filesystem::path directory(lease_id lease) const;

  std::filesystem::path logs_;
  std::uint64_t incarnation_ = 0;
};

}  // namespace troupe::actors
