#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "messages/base/reason.hpp"
#include "messages/base/units.hpp"

namespace troupe::actors {

/// A program's own report, in the file named by $TROUPE_REPORT.
struct program_report {
  std::uint64_t iterations = 0;  // completed by this attempt
  double peak_bytes = 0;
  std::optional<std::uint64_t> iteration, saved, resumed;  // from the job's beginning
  std::optional<std::uint64_t> last;                       // the job's last iteration, above 0
  double step_s = 0;
  bool finished = false;
  bool control = false;  // it reads the control file
  std::optional<double> loss;
  std::optional<std::uint32_t> failed_rank;  // its launcher's: that of the process that failed

  /// Completed iterations from the job's beginning, if the program says anything about them.
  /// `done`: by earlier attempts, where it does not say from where it has gone on.
  std::optional<std::uint64_t> reached(std::uint64_t done) const;
};

/// Lines of "key: number"; the last one of a key counts. Invalid numbers are ignored.
program_report parse_program_report(std::string_view text);

/// The last few KB, or nothing. Never blocks, whatever exists at that path.
program_report read_program_report(const std::string& path);

/// The output and report files of each lease: one directory per attempt, named by the lease and
/// this incarnation of the node, so that those of an earlier cluster are not mistaken for it.
class program_files {
 public:
  program_files() = default;
  program_files(std::filesystem::path logs, std::uint64_t incarnation)
      : logs_{std::move(logs)}, incarnation_{incarnation} {}

  /// Creates a new attempt's directory.
  std::error_code make(lease_id lease) const;
  /// The same, and fails with `unavailable` if programs could not write there.
  expected<void> prepare(lease_id lease) const;
  /// Would prepare() succeed?
  expected<void> try_out() const;
  std::string log(lease_id lease) const { return (directory(lease) / "output.log").string(); }
  std::string report(lease_id lease) const { return (directory(lease) / "report").string(); }

  std::string control(lease_id lease) const { return (directory(lease) / "control").string(); }
  /// Asks the program to stop within a time, by its control file. Fails if that cannot be written:
  /// the program may have put something else there.
  expected<void> request_stop(lease_id lease, double within_s) const;

  /// The log of the newest attempt, also of an earlier incarnation's; empty: there is none.
  std::string newest_log(lease_id lease) const;

 private:
  std::filesystem::path directory(lease_id lease) const;

  std::filesystem::path logs_;
  std::uint64_t incarnation_ = 0;
};

}  // namespace troupe::actors
