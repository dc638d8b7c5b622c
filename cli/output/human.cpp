#include "cli/output/human.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

namespace troupe::cli {

namespace {

/// Three significant digits: "3.21", "32.1", "321", "3".
std::string three_figures(double x) {
  auto text = fmt::format("{:.{}f}", x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

/// Length of the UTF-8 character at the front; 0: invalid.
// By table 3-7 of the Unicode standard: an overlong form or a surrogate that passed here would be
// refused by the JSON parsers that read this program's output.
std::size_t character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t n = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (n == 0 || n > text.size() || lead > 0xf4) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  if (n < 3) return n;
  // Longer than needed, surrogates, and beyond the last character.
  const auto next = static_cast<unsigned char>(text[1]);
  const bool bad = (lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f) ||
                   (lead == 0xf0 && next < 0x90) || (lead == 0xf4 && next > 0x8f);
  return bad ? 0 : n;
}

/// C0 and C1 controls, and DEL.
bool is_control(std::string_view c) {
  const auto lead = static_cast<unsigned char>(c[0]);
  return lead < 0x20 || lead == 0x7f ||
         (c.size() == 2 && lead == 0xc2 && static_cast<unsigned char>(c[1]) < 0xa0);
}

}  // namespace

std::string duration_text(double s) {
  if (!std::isfinite(s)) return "-";
  if (s < 0) return "-" + duration_text(-s);
  if (s == 0) return "0 s";
  // The limits are half a unit of the last shown digit below the next unit, so that rounding never
  // prints "1000 ms" or "60 s".
  if (s < 0.9995e-3) return three_figures(s * 1e6) + " us";
  if (s < 0.9995) return three_figures(s * 1e3) + " ms";
  if (s < 59.95) return three_figures(s) + " s";
  const auto whole = std::llround(s);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  const auto minutes = std::llround(s / 60);
  if (minutes < 24 * 60) return fmt::format("{}h {:02}m", minutes / 60, minutes % 60);
  const auto hours = std::llround(s / 3600);
  return fmt::format("{}d {:02}h", hours / 24, hours % 24);
}

std::string size_text(double bytes) {
  constexpr const char* units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return three_figures(bytes) + " " + units[unit];
}

std::string grouped(std::uint64_t n) {
  const auto digits = fmt::to_string(n);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string counted(std::uint64_t n, std::string_view noun) {
  const auto* ending = noun.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", grouped(n), noun, n == 1 ? "" : ending);
}

std::string duration_or(const std::optional<double>& s, std::string_view unknown) {
  return s ? duration_text(*s) : std::string{unknown};
}

std::string time_text(double since_1970_s) {
  const auto whole = static_cast<std::time_t>(since_1970_s);
  std::tm parts{};
  if (!localtime_r(&whole, &parts)) return "-";
  return fmt::format("{}-{:02}-{:02} {:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// Names and logs come from other users: a control character could move the cursor, change the
// terminal's title, or hide a line.
std::string printable(std::string_view text, bool keep_newlines) {
  std::string out;
  while (!text.empty()) {
    const auto n = character(text);
    if (keep_newlines && text[0] == '\n')
      out += '\n';
    else if (n == 0 || is_control(text.substr(0, n)))
      for (const char c : text.substr(0, std::max<std::size_t>(n, 1)))
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += text.substr(0, n);
    text.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto n = character(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos)
    return std::string{text};
  std::string quoted = "'";
  // Nothing is special between single quotes but the quote itself, which is written outside of
  // them.
  for (const char c : text) quoted += c == '\'' ? std::string{"'\\''"} : std::string(1, c);
  return quoted + "'";
}

}  // namespace troupe::cli
