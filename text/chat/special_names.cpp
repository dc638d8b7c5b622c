#include "text/chat/special_names.hpp"

#include <optional>
#include <string_view>

#include "text/json/json_file.hpp"
#include "text/json/json_members.hpp"

namespace troupe::gpu::special_names {

namespace {

using nlohmann::json;
using names = std::map<std::string, std::string>;

constexpr std::size_t max_config_bytes = 16u << 20;

/// A token as it is written: a text, or an object with one.
std::optional<std::string> token_in(const json& one) {
  const auto& text = one.is_string() ? one : member(one, "content");
  return text.is_string() ? std::optional{text.get<std::string>()} : std::nullopt;
}

/// Names that a class of transformers has for keys that its files lack.
names defaults_of(const json& config) {
  const auto& found = member(config, "tokenizer_class");
  if (!found.is_string()) return {};
  auto type = found.get<std::string>();
  if (type.ends_with("Fast")) type.resize(type.size() - 4);
  if (type == "LlamaTokenizer" || type == "CodeLlamaTokenizer")
    return {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
  if (type == "GemmaTokenizer")
    return {{"bos_token", "<bos>"},
            {"eos_token", "<eos>"},
            {"unk_token", "<unk>"},
            {"pad_token", "<pad>"}};
  constexpr const char* end = "<|endoftext|>";
  if (type == "GPT2Tokenizer") return {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}};
  if (type == "Qwen2Tokenizer") return {{"eos_token", end}, {"unk_token", end}, {"pad_token", end}};
  return {};
}

/// Takes over the names that a file has; null takes a name away.
void take(names& all, const json& from, bool others) {
  constexpr std::string_view known[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
  const auto one = [&](const std::string& key, const json& token) {
    if (token.is_null()) all.erase(key);
    if (auto t = token_in(token)) all[key] = std::move(*t);
  };
  for (const auto& key : known)
    if (from.contains(key)) one(std::string{key}, from[std::string{key}]);
  if (const auto& more = member(from, "extra_special_tokens"); others && more.is_object())
    for (const auto& [key, token] : more.items()) one(key, token);
}

}  // namespace

expected<json> read_config(const std::filesystem::path& folder) {
  return read_python_json_file_if_any(folder / "tokenizer_config.json", max_config_bytes);
}

/// Later sources overwrite earlier ones: the class, then the configuration, then the map.
expected<names> of(const std::filesystem::path& folder, const json& config) {
  auto all = defaults_of(config);
  take(all, config, true);
  // Newer files have everything in the configuration, and the map does not count.
  if (config.contains("added_tokens_decoder")) return all;
  const auto map =
      read_python_json_file_if_any(folder / "special_tokens_map.json", max_config_bytes);
  if (!map) return refuse(map.error());
  take(all, *map, false);
  return all;
}

}  // namespace troupe::gpu::special_names
