#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/parse/value.hpp"
#include "messages/admission/job_keys.hpp"
#include "messages/admission/objection.hpp"

// Reads a tree of values into structs. A loader reads each key that it knows; the first error is
// kept and later reads are skipped, so that a loader needs no error handling in between.

namespace troupe::formats {

/// The one of `known` that was probably meant by `found`: a few letters differ, or only the case.
std::optional<std::string> nearest_name(std::string_view found, std::span<const std::string> known);

/// "; did you mean 'x'?", or "; known: a, b, c" if they are few, or nothing.
std::string hint(std::string_view found, std::span<const std::string> known);

/// The known names of nodes, GPU types, ...
template <class List>
std::vector<std::string> names_of(const List& all) {
  std::vector<std::string> names;
  for (const auto& one : all) names.emplace_back(one.name);
  return names;
}

/// The first error of a file.
class findings {
 public:
  explicit findings(std::string file) : file_(std::move(file)) {}

  bool good() const { return !first_; }
  void add(int line, std::string_view place, std::string_view problem) {
    if (first_) return;
    first_ = complaint(file_, line, place, problem);
    place_ = place;
  }
  template <class... T>
  requires(sizeof...(T) > 0) void add(int line, std::string_view place,
                                      fmt::format_string<T...> problem, T&&... values) {
    if (good()) add(line, place, fmt::format(problem, std::forward<T>(values)...));
  }
  void add(reason why) {
    if (!first_) first_ = std::move(why);
  }
  /// A key that a map lacks. Further ones of the same map are part of the same error, so that they
  /// can be added in one go.
  void add_missing(int line, std::string_view place, std::string_view key);
  const std::string& file() const { return file_; }
  /// The key, column or field of the first error; empty: it is about more than one.
  const std::string& place() const { return place_; }
  /// Adds what would help to the first error.
  void advise(std::string_view what) {
    if (first_) first_->text += what;
  }
  /// As if the first error had not been: what it is about is left out.
  void forget() {
    first_.reset();
    place_.clear();
    missing_.clear();
  }
  /// Only if not good().
  tl::unexpected<reason> result() const { return refuse(*first_); }
  /// The value that was read, or the first error.
  template <class T>
  expected<T> result(T read) const {
    if (!good()) return result();
    return read;
  }

 private:
  std::string file_, place_;
  std::optional<reason> first_;
  int missing_line_ = -1;
  std::vector<std::string> missing_;  // if the first error is about missing keys
};

enum class need { optional, required };

using admission::range;
inline constexpr range positive{0, 1e15, true};
inline constexpr range zero_to_one{0, 1};

/// "intra.gbps": the path of a key in the file.
std::string inside(std::string_view place, std::string_view key);
/// "nodes[3]"
std::string inside(std::string_view place, std::size_t index);

/// One map of a file. Each read() leaves `out` unchanged if the key is missing or invalid.
class map_reader {
 public:
  map_reader(findings& found, const value& v, std::string place);

  const value* find(std::string_view key, need n = need::optional);
  /// A key that may be there and is not used, whatever its value.
  void skip(std::string_view key) { known_.emplace_back(key); }
  bool read(std::string_view key, std::string& out, need n = need::optional);
  bool read(std::string_view key, double& out, range r, need n = need::optional);
  bool read(std::string_view key, bool& out);
  bool read(std::string_view key, std::vector<std::string>& out);
  bool read(std::string_view key, std::optional<double>& out, range r);

  /// An integer from low to high.
  template <class T>
  bool read_whole(std::string_view key, T& out, T low, T high, need n = need::optional) {
    std::int64_t whole = 0;
    if (!read_integer(key, whole, static_cast<std::int64_t>(low), static_cast<std::int64_t>(high),
                      n))
      return false;
    out = static_cast<T>(whole);
    return true;
  }

  /// A valid name of a host or job: letters, digits, '.', '_' and '-', at most 64.
  bool read_name(std::string_view key, std::string& out, need n = need::optional);
  /// One of `known`.
  bool read_choice(std::string_view key, std::string& out, std::span<const std::string> known,
                   need n = need::optional);
  /// A list with at least `min_items` items; null if missing or invalid.
  const value* list(std::string_view key, std::size_t min_items = 0, need n = need::optional);

  /// Calls read(reader) for the items of such a list, which are maps, until one is invalid.
  template <class Read>
  void each(std::string_view key, Read read, std::size_t min_items = 0, need n = need::optional) {
    const auto* all = list(key, min_items, n);
    for (std::size_t i = 0; all && i < all->items.size() && found_.good(); ++i) {
      map_reader item{found_, all->items[i], inside(inside(place_, key), i)};
      read(item);
    }
  }
  /// Calls read(reader) for a key whose value is a map, and then its finish().
  template <class Read>
  bool section(std::string_view key, Read read, need n = need::optional) {
    const auto* v = find(key, n);
    if (!v) return false;
    map_reader map{found_, *v, inside(place_, key)};
    read(map);
    map.finish();
    return true;
  }
  /// Reports the first unknown key. Call it last.
  void finish();

  void fail(std::string_view key, std::string_view problem);
  template <class... T>
  requires(sizeof...(T) > 0) void fail(std::string_view key, fmt::format_string<T...> problem,
                                       T&&... values) {
    fail(key, fmt::format(problem, std::forward<T>(values)...));
  }
  int line() const { return value_.line; }
  /// The line of a key's value; of the map, if it does not have the key.
  int line(std::string_view key) const;
  const std::string& place() const { return place_; }
  findings& found() { return found_; }

 private:
  void complain_missing(std::string_view key);
  /// fail() of a function that returns whether it has read.
  template <class... T>
  bool invalid(std::string_view key, fmt::format_string<T...> problem, T&&... values) {
    fail(key, fmt::format(problem, std::forward<T>(values)...));
    return false;
  }
  bool read_integer(std::string_view key, std::int64_t& out, std::int64_t low, std::int64_t high,
                    need n);

  findings& found_;
  const value& value_;
  std::string place_;
  std::vector<std::string> known_;
};

/// The result of read(found, tree) for a file's tree, or the file's first error.
template <class Read>
auto read_file(const std::filesystem::path& file, Read read)
    -> expected<std::invoke_result_t<Read, findings&, const value&>> {
  const auto tree = load_value(file);
  if (!tree) return refuse(tree.error());
  findings found{file.string()};
  return found.result(read(found, *tree));
}

/// A scalar's text, or an error with the value that was found instead.
bool read_text_value(findings& found, const value& v, std::string_view place, std::string& out);
/// A finite number within r.
bool read_number(findings& found, const value& v, std::string_view place, double& out, range r);
using admission::is_name;  // whether read_name accepts it
/// "a list", "text 'abc'", ...
std::string describe(const value& v);
/// A finite decimal number without anything else.
std::optional<double> parse_number(std::string_view text);

}  // namespace troupe::formats
