#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

struct json_extent {
  std::size_t depth = 0, values = 1;  // at most
};
/// Depth and number of values, to be counted before a parser runs: its recursion and its memory are
/// bounded by them. In a text that is not JSON it may be anything, but then the parser stops there.
json_extent extent_of(std::string_view text);

/// A JSON text whose top level is an object, with its keys sorted: an object that keeps the text's
/// order would take time in proportion to the square of its names. A text of few bytes may take a
/// hundred times as many in memory, or many levels of the stack, so depth and number of values are
/// limited, before any of it is read. `file`: whose text it is, for errors.
expected<nlohmann::json> parse_json(std::string_view text, const std::filesystem::path& file);
/// The same of a text in which no object may have a name twice: of two values, a reader would take
/// either.
expected<nlohmann::json> parse_json_of_unique_names(std::string_view text,
                                                    const std::filesystem::path& file);

/// The same of a file. Fails, with the file's name, if it cannot be read, is larger than
/// `limit_bytes` or is something else.
expected<nlohmann::json> read_json_file(const std::filesystem::path& file, std::size_t limit_bytes);
/// null: there is no such file.
expected<nlohmann::json> read_json_file_if_any(const std::filesystem::path& file,
                                               std::size_t limit_bytes);

/// The same of a file that Python has written or would read: the words NaN, Infinity and -Infinity,
/// and numbers beyond the range of a double, are there as texts, so that a reader of a number
/// refuses them and others pass them over. The error names the line.
expected<nlohmann::json> read_python_json_file(const std::filesystem::path& file,
                                               std::size_t limit_bytes);
expected<nlohmann::json> read_python_json_file_if_any(const std::filesystem::path& file,
                                                      std::size_t limit_bytes);

/// A document as a file's text. Bytes that are not UTF-8, such as of a name from elsewhere, are
/// replaced: nlohmann's default would throw.
std::string text_of(const nlohmann::ordered_json& d);

}  // namespace troupe::gpu
