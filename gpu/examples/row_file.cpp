#include "gpu/examples/row_file.hpp"

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <vector>

#include "messages/base/whole_file.hpp"

namespace troupe::gpu {

namespace {

constexpr const char* rows_format = "troupe-rows-1";

/// The length of a header, and itself, a multiple of eight bytes.
std::string framed(const nlohmann::json& header) {
  auto text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + text;
}

}  // namespace

// Larger elements come first, so that each tensor is aligned.
expected<void> write_rows(const std::string& file, const example_set& s, const example_model& m) {
  std::vector<std::int64_t> examples{0}, rows{0};
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> trained;
  tokens.reserve(s.tokens), trained.reserve(s.tokens);
  for (const auto& row : s.rows) {
    for (const auto i : row) {
      const auto& e = s.examples[i];
      tokens.insert(tokens.end(), e.tokens.begin(), e.tokens.end());
      trained.insert(trained.end(), e.trained.begin(), e.trained.end());
      examples.push_back(static_cast<std::int64_t>(tokens.size()));
    }
    rows.push_back(static_cast<std::int64_t>(examples.size()) - 1);
  }
  nlohmann::json header{{"__metadata__",
                         {{"format", rows_format},
                          {"sequence", std::to_string(s.sequence)},
                          {"vocabulary", std::to_string(m.model.vocabulary)}}}};
  std::vector<std::span<const std::byte>> parts{{}};
  std::uint64_t end = 0;
  const auto add = [&](const char* name, const char* type, const auto& values) {
    const auto bytes = std::as_bytes(std::span{values});
    header[name] = {
        {"dtype", type}, {"shape", {values.size()}}, {"data_offsets", {end, end + bytes.size()}}};
    end += bytes.size();
    parts.push_back(bytes);
  };
  add("examples", "I64", examples);
  add("rows", "I64", rows);
  add("tokens", "I32", tokens);
  add("trained", "U8", trained);
  const auto text = framed(header);
  std::error_code ignored;  // writing says what is wrong
  std::filesystem::create_directories(std::filesystem::path{file}.parent_path(), ignored);
  parts[0] = std::as_bytes(std::span{text});
  return write_whole_file(file, parts);
}

}  // namespace troupe::gpu
