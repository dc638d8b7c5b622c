#include <algorithm>
#include <cstdint>
#include <string>

#include "formats/traces/trace.hpp"

// The times of all traces.

namespace troupe::formats {

namespace {

// No library function reads these: strptime knows no zones, std::chrono::parse needs GCC 14, and
// both depend on locales. Accepted: a date, or a date and a time separated by a blank or T, with a
// fraction and a zone. Without a zone a time counts as UTC.
constexpr double day_s = 86'400;
constexpr int farthest_east_min = 14 * 60, farthest_west_min = -12 * 60;

/// Days from 1970-01-01 to a date of the Gregorian calendar.
// In years that begin in March, so that the leap day is the last day (Hinnant, "chrono-Compatible
// Low-Level Date Algorithms").
std::int64_t days_since_1970(std::int64_t year, unsigned month, unsigned day) {
  year -= month <= 2;
  const auto era = (year >= 0 ? year : year - 399) / 400;
  const auto year_of_era = year - era * 400;
  const auto day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  const auto day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146'097 + day_of_era - 719'468;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// A time from its beginning to its end; what does not fit ends it.
class time_reader {
 public:
  explicit time_reader(std::string_view text) : left_{text} {}

  std::optional<double> read() {
    const auto day = date();
    if (!day || left_.empty()) return day;
    if (left_[0] != ' ' && left_[0] != 'T') return {};
    left_.remove_prefix(1);
    const auto time = time_of_day();
    if (!time) return {};
    const auto after = fraction();
    const auto ahead_min = zone();
    if (!after || !ahead_min || !left_.empty()) return {};
    return *day + *time - 60.0 * *ahead_min + *after;
  }

 private:
  /// A number of exactly `count` digits, from low to high.
  std::optional<int> number(std::size_t count, int low, int high) {
    if (left_.size() < count || !std::all_of(left_.begin(), left_.begin() + count, is_digit))
      return {};
    int n = 0;
    for (const char c : left_.substr(0, count)) n = n * 10 + (c - '0');
    left_.remove_prefix(count);
    return n >= low && n <= high ? std::optional{n} : std::nullopt;
  }
  bool take(std::string_view what) {
    if (!left_.starts_with(what)) return false;
    left_.remove_prefix(what.size());
    return true;
  }

  /// In seconds since 1970.
  std::optional<double> date() {
    const auto year = number(4, 1970, 9999);
    if (!year || !take("-")) return {};
    const auto month = number(2, 1, 12);
    if (!month || !take("-")) return {};
    constexpr int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool leap = (*year % 4 == 0 && *year % 100 != 0) || *year % 400 == 0;
    const auto day = number(2, 1, lengths[*month - 1] + (*month == 2 && leap));
    if (!day) return {};
    return day_s * static_cast<double>(days_since_1970(*year, static_cast<unsigned>(*month),
                                                       static_cast<unsigned>(*day)));
  }

  std::optional<double> time_of_day() {
    const auto hour = number(2, 0, 23);
    if (!hour || !take(":")) return {};
    const auto minute = number(2, 0, 59);
    if (!minute || !take(":")) return {};
    const auto second = number(2, 0, 60);
    if (!second) return {};
    return *hour * 3600 + *minute * 60 + *second;
  }

  /// The fraction of a second; 0 if there is none.
  std::optional<double> fraction() {
    if (!take(".")) return 0.0;
    const auto end = std::find_if_not(left_.begin(), left_.end(), is_digit);
    const auto count = static_cast<std::size_t>(end - left_.begin());
    if (count == 0) return {};
    const auto text = "0." + std::string{left_.substr(0, count)};
    left_.remove_prefix(count);
    return std::stod(text);
  }

  /// Minutes that the clock is ahead of UTC; 0 without a zone.
  // The abbreviations of North America are the only ones in published traces.
  std::optional<int> zone() {
    if (left_.empty()) return 0;
    if (take(" ") && left_.empty()) return {};
    if (take("Z")) return 0;
    static const std::pair<std::string_view, int> names[] = {
        {"UTC", 0},  {"GMT", 0},  {"EST", -5}, {"EDT", -4}, {"CST", -6},
        {"CDT", -5}, {"MST", -7}, {"MDT", -6}, {"PST", -8}, {"PDT", -7}};
    for (const auto& [name, hours] : names)
      if (left_ == name) return left_ = {}, 60 * hours;
    const int sign = take("+") ? 1 : take("-") ? -1 : 0;
    if (sign == 0) return {};
    const auto hours = number(2, 0, 14);
    if (!hours) return {};
    std::optional<int> minutes = 0;
    if (!left_.empty()) {
      take(":");
      minutes = number(2, 0, 59);
    }
    if (!minutes) return {};
    const auto ahead = sign * (60 * *hours + *minutes);
    return ahead <= farthest_east_min && ahead >= farthest_west_min ? std::optional{ahead}
                                                                    : std::nullopt;
  }

  std::string_view left_;
};

}  // namespace

std::optional<double> parse_timestamp(std::string_view text) {
  return time_reader{text}.read();
}

}  // namespace troupe::formats
