#include "gpu/model/json_file.hpp"

#include <fmt/format.h>

#include "gpu/model/mapped_file.hpp"

namespace troupe::gpu {

expected<nlohmann::json> read_json_file(const std::filesystem::path& file,
                                        std::size_t limit_bytes) {
  const auto mapped = map_file(file);
  if (!mapped) return refuse(mapped.error());
  const auto no = [&](const std::string& text) {
    return refuse(reason::kind::malformed, fmt::format("{}: {}", file.string(), text));
  };
  if (mapped->size > limit_bytes)
    return no(fmt::format("found {} bytes, expected at most {}", mapped->size, limit_bytes));
  const auto* text = reinterpret_cast<const char*>(mapped->bytes.get());
  auto all = nlohmann::json::parse(text, text + mapped->size, nullptr, false);
  if (!all.is_object()) return no("is not a JSON object");
  return all;
}

}  // namespace troupe::gpu
