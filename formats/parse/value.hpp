#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/base/shown.hpp"

// A file as a tree of values with their line numbers: the result of a parser, read by the loaders.

namespace troupe::formats {

/// The maximum size of a YAML or JSON file.
inline constexpr std::size_t file_limit_bytes = 16u << 20;
/// The maximum nesting, and the maximum number of values, of a file.
inline constexpr std::size_t depth_limit = 32, value_limit = 1'000'000;

/// One value. A map has the file's order; `keys[i]` names `items[i]`.
struct value {
  enum class kind { nothing, scalar, list, map };
  kind what = kind::nothing;
  bool quoted = false;  // a quoted scalar is text, whatever it looks like
  int line = 1;
  std::string text;
  std::vector<std::string> keys;
  std::vector<int> key_lines;
  std::vector<value> items;

  /// The position of a key; keys.size(): the map does not have it.
  std::size_t index_of(std::string_view key) const {
    return static_cast<std::size_t>(std::ranges::find(keys, key) - keys.begin());
  }
  bool has(std::string_view key) const { return index_of(key) < keys.size(); }
};

/// Reads a whole file, without the byte order mark that some editors and spreadsheets put in front
/// of it. Fails if it is missing, not a regular file,
/// larger than `limit_bytes`, empty, or not text.
expected<std::string> read_text(const std::filesystem::path& file,
                                std::size_t limit_bytes = file_limit_bytes);

/// Parses one YAML document. Rejects syntax errors, duplicate keys, anchors and aliases, tags,
/// several documents, too deep nesting and too many values. `file` is for the errors.
expected<value> parse_yaml(const std::string& file, const std::string& text);

/// The same for JSON.
expected<value> parse_json(const std::string& file, const std::string& text);

/// Calls `each` for every item of a JSON document that is one list, without keeping it. Returns at
/// the first for which `each` is false. The limits hold for each item; `file` is for the errors.
expected<void> for_each_in_json_list(const std::string& file, std::string_view text,
                                     const std::function<bool(const value&)>& each);

/// read_text, then the parser for the name's extension (.json, else YAML).
expected<value> load_value(const std::filesystem::path& file);

/// "FILE:LINE: PLACE: PROBLEM", without the line if it is 0 and the place if it is empty.
reason complaint(std::string_view file, int line, std::string_view place, std::string_view problem);

}  // namespace troupe::formats
