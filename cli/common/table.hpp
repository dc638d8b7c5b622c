#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::cli {

/// Columns for people: two spaces between them, numbers to the right, all else to the left. Control
/// characters in cells are escaped: names and sentences may come from others.
class table {
 public:
  explicit table(std::vector<std::string> heads) : heads_{std::move(heads)} {}

  /// As many cells as there are heads.
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  /// The heads and the rows; no spaces at line ends. Where a line would be longer than
  /// `max_columns`, the last column goes on below itself. 0: no limit.
  std::string text(std::size_t max_columns = 0) const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace troupe::cli
