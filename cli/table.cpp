#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::cli {

namespace {

/// A cell that is read by comparing digits: "12", "-", "36.74", "85 %", "" but not "A100".
bool is_number(const std::string& cell) {
  return cell.empty() || cell == "-" ||
         cell.find_first_not_of("0123456789.,+-%xe ") == std::string::npos;
}

/// Columns, not bytes: a UTF-8 continuation byte is none.
std::size_t display_width(const std::string& s) {
  return static_cast<std::size_t>(
      std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string table::text() const {
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    widths.push_back(display_width(heads_[i]));
    right.push_back(!rows_.empty());
    for (const auto& r : rows_) {
      widths[i] = std::max(widths[i], display_width(r[i]));
      if (!is_number(r[i])) right[i] = false;
    }
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string pad(widths[i] - display_width(cells[i]), ' ');
      line += (i ? "  " : "") + (right[i] ? pad + cells[i] : cells[i] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add(heads_);
  for (const auto& r : rows_) add(r);
  return out;
}

}  // namespace troupe::cli
