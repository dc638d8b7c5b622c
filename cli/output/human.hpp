#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::cli {

// Numbers for people. JSON has seconds and bytes.

/// "850 us", "12.5 ms", "3.21 s", "48 s", "2m 05s", "1h 02m", "4d 05h"; of seconds, 0 or more.
std::string duration_text(double s);
/// "512 B", "93.4 KB", "21.6 GB"; decimal units.
std::string size_text(double bytes);
/// "100,000,000"
std::string grouped(std::uint64_t n);
/// "1 node", "2 nodes", "1,000 nodes"
std::string counted(std::uint64_t n, std::string_view noun);

/// `unknown` where there is no value.
std::string duration_or(const std::optional<double>& s, std::string_view unknown = "-");

/// "2026-03-01 14:05:09" in the local time zone, from seconds since 1970.
std::string time_text(double since_1970_s);

/// Makes text safe for terminals: control characters and invalid UTF-8 are escaped as \x1b,
/// newlines too unless they are kept.
std::string printable(std::string_view text, bool keep_newlines = false);

/// Is all of it UTF-8, as text in JSON must be?
bool is_utf8(std::string_view text);

/// A word of a command that can be pasted into a shell: in quotes if it has characters that a shell
/// would interpret.
std::string shell_word(std::string_view text);

}  // namespace troupe::cli
