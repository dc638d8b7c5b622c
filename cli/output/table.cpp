#include "cli/output/table.hpp"

#include <algorithm>

#include "cli/output/human.hpp"

namespace troupe::cli {

namespace {

/// A numeric cell: "12", "-", "36.74", "85 %", "", a duration or a size, but not "A100".
bool is_number(const std::string& cell) {
  if (cell.empty() || cell == "-") return true;
  const auto digit = cell.find_first_of("0123456789");
  return digit <= 1 &&
         cell.find_first_not_of("0123456789.,:/+-%xe dhmsunBKMGTP±") == std::string::npos;
}

bool is_continuation(char c) {
  return (c & 0xC0) == 0x80;
}

/// Columns, not bytes: UTF-8 continuation bytes do not count.
std::size_t display_width(const std::string& s) {
  return static_cast<std::size_t>(
      std::count_if(s.begin(), s.end(), [](char c) { return !is_continuation(c); }));
}

/// Splits text into pieces of at most `columns`, at spaces if possible.
std::vector<std::string> wrapped(std::string text, std::size_t columns) {
  std::vector<std::string> lines;
  while (display_width(text) > columns) {
    std::size_t bytes = 0, shown = 0;
    while (shown < columns || is_continuation(text[bytes]))
      if (!is_continuation(text[bytes++])) ++shown;
    // From `bytes`, not before it: a word may end exactly at the edge.
    const auto space = text.rfind(' ', bytes);
    const auto cut = space == std::string::npos || space == 0 ? bytes : space;
    lines.push_back(text.substr(0, cut));
    text.erase(0, cut == space ? cut + 1 : cut);
  }
  lines.push_back(std::move(text));
  return lines;
}

}  // namespace

void table::row(std::vector<std::string> cells) {
  // Here, before widths are taken: escapes are wider than what they stand for.
  for (auto& c : cells) c = printable(c);
  rows_.push_back(std::move(cells));
}

std::string table::text(std::size_t max_columns) const {
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  std::size_t before_last = 0;
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    widths.push_back(display_width(heads_[i]));
    right.push_back(!rows_.empty());
    for (const auto& r : rows_) {
      widths[i] = std::max(widths[i], display_width(r[i]));
      // A column is aligned to the right only if all its cells are numbers.
      if (!is_number(r[i])) right[i] = false;
    }
    if (i + 1 < heads_.size()) before_last += widths[i] + 2;
  }
  // Only the last column, which has the sentences, is wrapped; in a very narrow terminal lines
  // overflow rather than have a word each.
  constexpr std::size_t min_last = 20;
  const bool narrow = max_columns > 0 && before_last + widths.back() > max_columns;
  const std::size_t last =
      !narrow ? widths.back()
              : std::max(min_last, max_columns - std::min(max_columns, before_last));
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i + 1 < cells.size(); ++i) {
      const std::string pad(widths[i] - display_width(cells[i]), ' ');
      line += (right[i] ? pad + cells[i] : cells[i] + pad) + "  ";
    }
    for (const auto& piece : wrapped(cells.back(), last)) {
      if (line.empty()) line.assign(before_last, ' ');  // below the cell's first line
      const auto missing = right.back() && !narrow ? last - display_width(piece) : 0;
      line += std::string(missing, ' ') + piece;
      // Spaces at the end would show up in diffs and pasted text.
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
      line.clear();
    }
  };
  add(heads_);
  for (const auto& r : rows_) add(r);
  return out;
}

}  // namespace troupe::cli
