#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/parse/reader.hpp"

namespace troupe::formats {

/// A CSV file with a header line, read strictly: every row has every column, no quotes, '#' begins
/// a comment line. Rows are views into the text, which must live as long.
class csv_reader {
 public:
  csv_reader(findings& found, std::string_view text);

  /// Complains about a required column that is absent, or one that is in neither list.
  void expect(const std::vector<std::string>& required, const std::vector<std::string>& optional);
  bool has(std::string_view column) const { return index(column) < columns_.size(); }

  /// The next row; false at the end or after a complaint.
  bool next();
  /// A field of this row; empty if the column is absent.
  std::string_view field(std::string_view column) const;
  /// A number within r; a complaint and 0 otherwise.
  double number(std::string_view column, range r);
  /// A whole number within r.
  double whole(std::string_view column, range r);
  void fail(std::string_view column, std::string_view problem);
  int line() const { return line_; }

 private:
  std::size_t index(std::string_view column) const;
  bool next_line(std::string_view& out);

  findings& found_;
  std::string_view rest_;
  int line_ = 0;
  std::vector<std::string> columns_;
  std::vector<std::string_view> fields_;
};

}  // namespace troupe::formats
