#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::cli {

/// A table for people: two spaces between columns, numbers right-aligned, other cells left-aligned.
/// Control characters in cells are escaped: names and sentences are untrusted.
class table {
 public:
  explicit table(std::vector<std::string> heads) : heads_{std::move(heads)} {}

  /// As many cells as headers.
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  /// The headers and the rows, without trailing spaces. If a line would exceed `max_columns`, the
  /// last column is wrapped. 0: no limit.
  std::string text(std::size_t max_columns = 0) const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace troupe::cli
