#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/parse/reader.hpp"

namespace troupe::formats {

/// A strict reader of CSV files with a header line: every row has every column, no quotes, '#'
/// begins a comment line. Rows are views into the text, which must outlive them.
class csv_reader {
 public:
  csv_reader(findings& found, std::string_view text);
  /// For a file without a header line.
  csv_reader(findings& found, std::string_view text, std::vector<std::string> columns);

  /// Fails if a required column is missing, or a column is in neither list.
  void expect(const std::vector<std::string>& required, const std::vector<std::string>& optional);
  bool has(std::string_view column) const { return index(column) < columns_.size(); }

  /// The next row; false at the end or after an error.
  bool next();
  /// A field of this row; empty if the column is absent.
  std::string_view field(std::string_view column) const;
  /// A number within r; on error 0.
  double number(std::string_view column, range r);
  /// An integer within r.
  double whole(std::string_view column, range r);
  void fail(std::string_view column, std::string_view problem);
  template <class... T>
  requires(sizeof...(T) > 0) void fail(std::string_view column, fmt::format_string<T...> problem,
                                       T&&... values) {
    fail(column, fmt::format(problem, std::forward<T>(values)...));
  }
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
