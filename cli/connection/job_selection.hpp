#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/connection/controller_connection.hpp"

namespace troupe::cli {

/// Does a name match a shell's pattern of `*` and `?`?
bool matches_pattern(const std::string& name, const std::string& pattern);

/// The options with which verbs choose jobs: --mine, --name and --states; all that are given must
/// hold.
class job_selection {
 public:
  void options(CLI::App& app);
  bool empty() const { return !mine_ && pattern_.empty() && states_.empty(); }
  /// `caller`: the name of the key that --mine means.
  bool holds(const job_status& j, const std::string& caller) const;

 private:
  bool mine_ = false;
  std::string pattern_;
  std::vector<std::string> states_;
};

/// Job numbers on the command line: "3", and "5-7" for 5, 6 and 7.
class job_numbers {
 public:
  void options(CLI::App& app, const char* what);
  bool empty() const { return words_.empty(); }
  /// Each once, in the order given. Fails with the word that is no number.
  expected<std::vector<job_id>> ids() const;
  /// One number, and no range.
  bool is_one() const { return words_.size() == 1 && words_[0].find('-') == std::string::npos; }

 private:
  std::vector<std::string> words_;
};

/// The jobs of a verb that changes jobs: numbers, or a selection of those that have not ended.
class chosen_jobs {
 public:
  void options(CLI::App& app);
  /// Fails if neither numbers nor a selection is given, or both.
  expected<std::vector<job_id>> ids(remote& r) const;
  /// Was one number given, and thus no list?
  bool is_one() const { return numbers_.is_one(); }

 private:
  job_numbers numbers_;
  job_selection selection_;
};

}  // namespace troupe::cli
