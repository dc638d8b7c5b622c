#include "formats/parse/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::formats {

// A subset of CSV in which a row is a line and a field is the text between two commas: no quotes,
// so neither a comma nor a line break can be in a field. Every published trace that is read fits,
// and a stray quote becomes an error about its field instead of swallowing the rows that follow.
namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r'))
    s.remove_suffix(1);
  return s;
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> out;
  while (true) {
    const auto comma = line.find(',');
    out.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return out;
    line.remove_prefix(comma + 1);
  }
}

}  // namespace

// A duplicate column would make the meaning of field() a matter of order.
csv_reader::csv_reader(findings& found, std::string_view text) : found_(found), rest_(text) {
  std::string_view header;
  if (!next_line(header)) {
    found_.add(line_, "", "no header line; expected column names");
    return;
  }
  for (const auto name : split(header)) {
    if (std::find(columns_.begin(), columns_.end(), name) != columns_.end())
      found_.add(line_, "", "duplicate column '{}'", shown(name));
    columns_.emplace_back(name);
  }
}

csv_reader::csv_reader(findings& found, std::string_view text, std::vector<std::string> columns)
    : found_(found), rest_(text), columns_(std::move(columns)) {}

void csv_reader::expect(const std::vector<std::string>& required,
                        const std::vector<std::string>& optional) {
  auto known = required;
  known.insert(known.end(), optional.begin(), optional.end());
  for (const auto& name : columns_)
    if (std::find(known.begin(), known.end(), name) == known.end())
      found_.add(line_, "", "unknown column '{}'{}", shown(name), hint(name, known));
  for (const auto& name : required)
    if (!has(name)) found_.add(line_, "", "missing column '{}'", name);
}

// Counts every line, comments and empty ones included, as an editor does.
bool csv_reader::next_line(std::string_view& out) {
  while (!rest_.empty()) {
    const auto end = rest_.find('\n');
    out = trimmed(rest_.substr(0, end));
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++line_;
    if (!out.empty() && out.front() != '#') return true;
  }
  return false;
}

// A row with too few or too many fields is an error: it is a shifted row more often than a short
// one.
bool csv_reader::next() {
  std::string_view row;
  if (!found_.good() || !next_line(row)) return false;
  fields_ = split(row);
  if (fields_.size() == columns_.size()) return true;
  found_.add(line_, "", "found {} fields, expected {}{}", fields_.size(), columns_.size(),
             row.find('"') == std::string_view::npos
                 ? ""
                 : "; quotes are text here, so that no field can have a comma");
  return false;
}

std::size_t csv_reader::index(std::string_view column) const {
  return static_cast<std::size_t>(std::find(columns_.begin(), columns_.end(), column) -
                                  columns_.begin());
}

std::string_view csv_reader::field(std::string_view column) const {
  const auto i = index(column);
  return i < fields_.size() ? fields_[i] : std::string_view{};
}

// Shares the number rules of YAML files, and so their words in errors.
double csv_reader::number(std::string_view column, range r) {
  value v;
  v.what = value::kind::scalar;
  v.line = line_;
  v.text = field(column);
  double x = 0;
  read_number(found_, v, column, x, r);
  return x;
}

double csv_reader::whole(std::string_view column, range r) {
  const double x = number(column, r);
  if (x != std::floor(x))
    fail(column, fmt::format("found '{}', expected a whole number", shown(field(column))));
  return x;
}

void csv_reader::fail(std::string_view column, std::string_view problem) {
  found_.add(line_, column, problem);
}

}  // namespace troupe::formats
