#include "text/json/json_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "messages/base/invariant.hpp"
#include "messages/base/python_numbers.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "messages/base/untrusted_file.hpp"

namespace troupe::gpu {

namespace {

constexpr std::size_t max_depth = 64;
// A tokenizer of 262,144 tokens has 1.8 million.
constexpr std::size_t max_values = 4'000'000;

/// Passes over a text; what it meets is of interest to classes on it.
class passing_reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool key(string_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }
};

/// Notes a name that an object has twice. A pass of its own: nlohmann's parser with a callback
/// takes time in proportion to the square of an object's members.
class unique_names final : public passing_reader {
 public:
  bool start_object(std::size_t) override {
    open_.emplace_back();
    return true;
  }
  bool end_object() override {
    TROUPE_INVARIANT(!open_.empty(), "an object that ends has begun");
    open_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    TROUPE_INVARIANT(!open_.empty(), "a name is in an object that has begun");
    if (!open_.back().insert(name).second && !twice_) twice_ = name;
    return true;
  }

  const std::optional<std::string>& twice() const { return twice_; }

 private:
  std::vector<std::set<std::string>> open_;  // names of the objects around the present place
  std::optional<std::string> twice_;
};

// Limits are checked before the parser runs, since nlohmann's recursion and its nodes are out of
// this program's control afterwards. Exceptions are switched off: a text that is not JSON becomes a
// discarded value, which is not an object either.
expected<nlohmann::json> parse(std::string_view text, const std::filesystem::path& file,
                               unique_names* names = nullptr) {
  const auto failure = [&](const std::string& why) {
    return refuse(reason::kind::malformed, "{}: {}", file.string(), why);
  };
  const auto e = extent_of(text);
  if (e.depth > max_depth)
    return failure(fmt::format("found {} levels of JSON, expected at most {}", e.depth, max_depth));
  if (e.values > max_values)
    return failure(
        fmt::format("found {} values of JSON, expected at most {}", e.values, max_values));
  auto all = nlohmann::json::parse(text, nullptr, false);
  if (!all.is_object()) return failure("is not a JSON object");
  if (names) nlohmann::json::sax_parse(text, names);
  if (names && names->twice())
    return failure(fmt::format("found the name '{}' twice in one object, expected it once",
                               shown(*names->twice())));
  return all;
}

/// The line in which a text stops to be JSON; 0: it is JSON.
class wrong_line final : public passing_reader {
 public:
  explicit wrong_line(std::string_view text) : text_{text} {
    nlohmann::json::sax_parse(text, this);
  }
  std::size_t number() const { return number_; }

  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::json::exception&) override {
    const auto before = text_.substr(0, byte == 0 ? 0 : byte - 1);
    number_ = 1 + static_cast<std::size_t>(std::ranges::count(before, '\n'));
    return false;
  }

 private:
  std::string_view text_;
  std::size_t number_ = 0;
};

}  // namespace

// Brackets and commas within strings do not count.
json_extent extent_of(std::string_view text) {
  json_extent e;
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      e.depth = std::max(e.depth, ++depth);
      ++e.values;
    } else if (c == ',') {
      ++e.values;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return e;
}

std::string text_of(const nlohmann::ordered_json& d) {
  return d.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

expected<nlohmann::json> parse_json(std::string_view text, const std::filesystem::path& file) {
  return parse(text, file);
}

// The parser keeps silent about repeated names.
expected<nlohmann::json> parse_json_of_unique_names(std::string_view text,
                                                    const std::filesystem::path& file) {
  unique_names names;
  return parse(text, file, &names);
}

// The size limit holds while the file is read, so a file that grows meanwhile is refused as well.
expected<nlohmann::json> read_json_file(const std::filesystem::path& file,
                                        std::size_t limit_bytes) {
  const auto text = read_file(file.string(), limit_bytes);
  if (!text) return refuse(text.error());
  return parse(*text, file);
}

expected<nlohmann::json> read_json_file_if_any(const std::filesystem::path& file,
                                               std::size_t limit_bytes) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return nlohmann::json{};
  return read_json_file(file, limit_bytes);
}

// A text that is too deep for a parser is refused before the line is looked for.
expected<nlohmann::json> read_python_json_file(const std::filesystem::path& file,
                                               std::size_t limit_bytes) {
  const auto text = read_file(file.string(), limit_bytes);
  if (!text) return refuse(text.error());
  const auto plain = with_quoted_python_numbers(*text);
  auto all = parse(plain, file);
  if (all || extent_of(plain).depth > max_depth || extent_of(plain).values > max_values) return all;
  const auto line = wrong_line{plain}.number();
  if (line == 0) return all;
  return refuse(all.error().code, "{}, by its line {}", all.error().text, line);
}

expected<nlohmann::json> read_python_json_file_if_any(const std::filesystem::path& file,
                                                      std::size_t limit_bytes) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return nlohmann::json{};
  return read_python_json_file(file, limit_bytes);
}

}  // namespace troupe::gpu
