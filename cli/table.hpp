#pragma once

#include <string>
#include <vector>

namespace troupe::cli {

/// Columns for people: two spaces between them, numbers to the right, all else to the left.
class table {
 public:
  explicit table(std::vector<std::string> heads) : heads_{std::move(heads)} {}

  /// As many cells as there are heads.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }

  /// The heads and the rows, a line each; no spaces at line ends.
  std::string text() const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace troupe::cli
