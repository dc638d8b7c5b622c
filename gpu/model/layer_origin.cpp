#include "gpu/model/layer_origin.hpp"

#include <nlohmann/json.hpp>

#include "gpu/model/layer_export.hpp"
#include "gpu/model/safetensors.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

std::string in_order(const std::string& object) {
  const auto found = nlohmann::json::parse(object.empty() ? "{}" : object, nullptr, false);
  return found.is_discarded() ? object : found.dump();
}

// A value that is missing or of another type is unknown: the worker, which reads the same file,
// refuses it.
expected<std::optional<layer_origin>> origin_of(const checkpoint& c) {
  if (c.files().empty() || !is_of_program(c)) return std::nullopt;
  const auto& file = c.files().front();
  const auto about = parse_json(*file.metadata("troupe"), file.file());
  if (!about) return refuse(about.error());
  layer_origin origin;
  if (const auto it = about->find("sha256"); it != about->end() && it->is_string())
    origin.sha256 = it->get<std::string>();
  if (const auto it = about->find("arguments"); it != about->end() && it->is_object())
    origin.arguments = in_order(it->dump());
  if (const auto it = about->find("data"); it != about->end() && it->is_object()) {
    const auto batch = it->find("global_batch"), samples = it->find("samples");
    if (batch != it->end() && samples != it->end() && batch->is_number_unsigned() &&
        samples->is_number_unsigned()) {
      origin.global_batch = batch->get<std::uint64_t>();
      origin.samples = samples->get<std::uint64_t>();
    }
  }
  return origin;
}

}  // namespace troupe::gpu
