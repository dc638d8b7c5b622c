#include "gpu/model/json_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "messages/untrusted_file.hpp"

namespace troupe::gpu {

namespace {

constexpr std::size_t max_depth = 64;
// A tokenizer of 262,144 tokens has 1.8 million.
constexpr std::size_t max_values = 4'000'000;

struct extent {
  std::size_t depth = 0, values = 1;  // at most
};

/// In a text that is not JSON it may be anything, but then the parser stops there.
extent extent_of(std::string_view text) {
  extent e;
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

template <class Json>
expected<Json> parse(std::string_view text, const std::filesystem::path& file) {
  const auto no = [&](const std::string& why) {
    return refuse(reason::kind::malformed, fmt::format("{}: {}", file.string(), why));
  };
  const auto e = extent_of(text);
  if (e.depth > max_depth)
    return no(fmt::format("found {} levels of JSON, expected at most {}", e.depth, max_depth));
  if (e.values > max_values)
    return no(fmt::format("found {} values of JSON, expected at most {}", e.values, max_values));
  auto all = Json::parse(text, nullptr, false);
  if (!all.is_object()) return no("is not a JSON object");
  return all;
}

template <class Json>
expected<Json> read(const std::filesystem::path& file, std::size_t limit_bytes) {
  const auto text = read_file(file.string(), limit_bytes);
  if (!text) return refuse(text.error());
  return parse<Json>(*text, file);
}

}  // namespace

expected<nlohmann::ordered_json> parse_json(std::string_view text,
                                            const std::filesystem::path& file) {
  return parse<nlohmann::ordered_json>(text, file);
}

expected<nlohmann::json> read_json_file(const std::filesystem::path& file,
                                        std::size_t limit_bytes) {
  return read<nlohmann::json>(file, limit_bytes);
}

expected<nlohmann::ordered_json> read_ordered_json_file(const std::filesystem::path& file,
                                                        std::size_t limit_bytes) {
  return read<nlohmann::ordered_json>(file, limit_bytes);
}

}  // namespace troupe::gpu
