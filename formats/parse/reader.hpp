#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/parse/value.hpp"

// Reading a tree of values into structs. A loader asks for each key that it knows; the first thing
// that is wrong is kept and everything after it is skipped, so a loader reads straight down.

namespace troupe::formats {

/// The one of `known` that `found` was probably meant to be: few letters away, or only in another
/// case.
std::optional<std::string> nearest_name(std::string_view found, std::span<const std::string> known);

/// "; did you mean 'x'?", or "; known: a, b, c" if they are few, or nothing.
std::string hint(std::string_view found, std::span<const std::string> known);

/// What is wrong with a file: the first complaint.
class findings {
 public:
  explicit findings(std::string file) : file_(std::move(file)) {}

  bool good() const { return !first_; }
  void add(int line, std::string_view place, std::string_view problem) {
    if (!first_) first_ = complaint(file_, line, place, problem);
  }
  void add(reason why) {
    if (!first_) first_ = std::move(why);
  }
  const std::string& file() const { return file_; }
  /// Only if not good().
  tl::unexpected<reason> result() const { return tl::unexpected<reason>(*first_); }

 private:
  std::string file_;
  std::optional<reason> first_;
};

enum class need { optional, required };

/// The numbers that make sense for a key, ends included; `above_low`: the low end not.
struct range {
  double low = 0;
  double high = 1e15;
  bool above_low = false;
};
inline constexpr range positive{0, 1e15, true};
inline constexpr range share{0, 1};

/// "intra.gbps": a key's place in the file.
std::string inside(std::string_view place, std::string_view key);
/// "nodes[3]"
std::string inside(std::string_view place, std::size_t index);

/// One map of a file. Each read() leaves `out` alone if the key is absent or wrong.
class map_reader {
 public:
  map_reader(findings& found, const value& v, std::string place);

  const value* find(std::string_view key, need n = need::optional);
  bool read(std::string_view key, std::string& out, need n = need::optional);
  bool read(std::string_view key, double& out, range r, need n = need::optional);
  bool read(std::string_view key, bool& out);
  bool read(std::string_view key, std::vector<std::string>& out);
  bool read(std::string_view key, std::optional<double>& out, range r);

  /// A whole number from low to high.
  template <class T>
  bool read_whole(std::string_view key, T& out, T low, T high, need n = need::optional) {
    std::int64_t whole = 0;
    if (!read_integer(key, whole, static_cast<std::int64_t>(low), static_cast<std::int64_t>(high),
                      n))
      return false;
    out = static_cast<T>(whole);
    return true;
  }

  /// A word of letters, digits, '.', '_' and '-', 64 at most: what may name a host or a job.
  bool read_name(std::string_view key, std::string& out, need n = need::optional);
  /// One of `known`.
  bool read_choice(std::string_view key, std::string& out, std::span<const std::string> known,
                   need n = need::optional);
  /// A list, `least` items or more; null if absent or wrong.
  const value* list(std::string_view key, std::size_t least = 0, need n = need::optional);

  /// Complains about the first key that nobody asked for. Call it last.
  void finish();

  void fail(std::string_view key, std::string_view problem);
  int line() const { return value_.line; }
  const std::string& place() const { return place_; }
  findings& found() { return found_; }

 private:
  void complain_missing(std::string_view key);
  bool read_integer(std::string_view key, std::int64_t& out, std::int64_t low, std::int64_t high,
                    need n);

  findings& found_;
  const value& value_;
  std::string place_;
  std::vector<std::string> known_;
};

/// A scalar's text, or a complaint that says what was found instead.
bool read_text_value(findings& found, const value& v, std::string_view place, std::string& out);
/// A finite number within r.
bool read_number(findings& found, const value& v, std::string_view place, double& out, range r);
using admission::is_name;  // whether a name is one that read_name takes
/// "a list", "text 'abc'", ...
std::string describe(const value& v);
/// A finite decimal number and nothing else.
std::optional<double> parse_number(std::string_view text);

}  // namespace troupe::formats
