#include "text/tokens/tokenizer_settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "messages/base/whole_number.hpp"
#include "text/json/json_file.hpp"
#include "text/json/json_members.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

bool is_true(const json& value) {
  return value.is_boolean() && value.get<bool>();
}

tl::unexpected<reason> not_supported(const fs::path& file, const char* key, const json& value) {
  return refuse(reason::kind::invalid, "{}: {} is {}, which is not supported", file.string(), key,
                shown(value.dump()));
}

/// The name of a token: a text, or an object with flags.
std::string name_of(const json& token) {
  return token.is_object()   ? token.value("content", std::string{})
         : token.is_string() ? token.get<std::string>()
                             : std::string{};
}

/// Calls `use` with each token that a file names as special: bos_token and the like, and lists of
/// others.
template <class F>
void each_special(const json& all, F use) {
  if (!all.is_object()) return;
  for (const auto& [key, value] : all.items()) {
    const bool list = key == "additional_special_tokens" || key == "extra_special_tokens";
    if (list && (value.is_array() || value.is_object()))
      for (const auto& one : value) use(one);
    else if (key.ends_with("_token") && !name_of(value).empty())
      use(value);
  }
}

}  // namespace

/// The files are optional, since tokenizer.json alone is enough; one that exists must be readable.
/// The limit is that of tokenizer.json, as added_tokens_decoder may list thousands of tokens.
expected<tokenizer_settings> tokenizer_settings::read(const fs::path& folder) {
  constexpr std::size_t limit_bytes = 64u << 20;
  tokenizer_settings s;
  for (auto [to, name] :
       {std::pair{&s.config_, "tokenizer_config.json"},
        std::pair{&s.map_, "special_tokens_map.json"}, std::pair{&s.added_, "added_tokens.json"}}) {
    to->path = folder / name;
    auto all = read_python_json_file_if_any(to->path, limit_bytes);
    if (!all) return refuse(all.error());
    to->content = std::move(*all);
  }
  return s;
}

/// The fast and the slow class of transformers share their settings and differ in the suffix only.
bool tokenizer_settings::is_of_class(std::initializer_list<const char*> names) const {
  const auto& found = config_.at("tokenizer_class");
  if (!found.is_string()) return false;
  auto name = found.get<std::string>();
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return std::ranges::any_of(names, [&](const char* n) { return name == n; });
}

/// The configuration wins over special_tokens_map.json; null there means that there is no such
/// token.
std::string tokenizer_settings::named(const char* key, const char* otherwise) const {
  for (const auto* f : {&config_, &map_})
    if (f->content.is_object() && f->content.contains(key)) return name_of(f->at(key));
  return otherwise;
}

/// Refuses settings that would make other tokens of a text and are not supported. False or missing
/// is fine for all of them, as it is the default of the supported classes.
expected<void> tokenizer_settings::refuse_unknown() const {
  for (const auto* key : {"do_lower_case", "do_lowercase_and_remove_accent", "remove_space",
                          "strip_accents", "fix_mistral_regex"})
    if (is_true(config_.at(key))) return not_supported(config_.path, key, config_.at(key));
  for (const auto* key :
       {"add_bos_token", "add_eos_token", "add_prefix_space", "split_special_tokens"})
    if (const auto& value = config_.at(key); !value.is_null() && !value.is_boolean())
      return not_supported(config_.path, key, value);
  return {};
}

/// The order of transformers: first tokens with numbers, then names with numbers, and at last
/// special names, which may get a new number. A name that special_tokens_map.json has as special is
/// special also where added_tokens.json gives only its number.
expected<void> tokenizer_settings::add_tokens(added_token_list& list) const {
  std::vector<std::string> specials;
  for (const auto* f : {&config_, &map_})
    each_special(f->content, [&](const json& one) { specials.push_back(name_of(one)); });
  const auto is_special = [&](const std::string& name) {
    return std::ranges::find(specials, name) != specials.end();
  };
  if (const auto& all = config_.at("added_tokens_decoder"); !all.is_null())
    for (const auto& [key, token] : all.items()) {
      const auto number = whole_number<std::uint32_t>(key);
      if (!number) return not_supported(config_.path, "added_tokens_decoder: a number", key);
      if (auto ok = list.add(config_.path, *number, token); !ok) return ok;
    }
  if (added_.content.is_object())
    for (const auto& [name, number] : added_.content.items())
      if (auto ok = list.add_name(added_.path, number.get<std::uint32_t>(), name, is_special(name));
          !ok)
        return ok;
  for (const auto* f : {&config_, &map_})
    each_special(f->content, [&](const json& one) { list.add_special(one); });
  return {};
}

/// The token that is put beside texts: none if no file has its name. A name without a token is
/// refused if a file asks for it.
expected<std::vector<std::uint32_t>> tokenizer_settings::frame(const added_token_list& list,
                                                               const char* key,
                                                               const char* otherwise) const {
  const auto name = named(key, otherwise);
  if (const auto number = list.number_of(name)) return std::vector{*number};
  const auto wish = fmt::format("add_{}", key);
  if (!is_true(config_.at(wish.c_str()))) return std::vector<std::uint32_t>{};
  return refuse(reason::kind::invalid, "{}: {} is true, but {} '{}' is no token",
                config_.path.string(), wish, key, shown(name));
}

/// add_bos_token and add_eos_token decide, where they are given, over any post_processor. In the
/// classes of Llama and Gemma a text begins with a token by default.
expected<void> tokenizer_settings::frame_texts(const added_token_list& list,
                                               tokenizer_document& d) const {
  const bool llama = is_of_class({"LlamaTokenizer", "CodeLlamaTokenizer"});
  const bool gemma = is_of_class({"GemmaTokenizer"});
  const bool unsaid = (llama || gemma) && d.content["post_processor"].is_null();
  const auto decide = [&](const char* wish, bool otherwise, const char* key, const char* name,
                          std::optional<std::vector<std::uint32_t>>& out) -> expected<void> {
    const auto& given = config_.at(wish);
    if (given.is_null() && !otherwise) return {};
    out.emplace();
    if (!given.is_null() && !is_true(given)) return {};
    auto tokens = frame(list, key, name);
    if (!tokens) return refuse(tokens.error());
    out = std::move(*tokens);
    return {};
  };
  const auto* begin = llama ? "<s>" : gemma ? "<bos>" : "";
  const auto* end = llama ? "</s>" : gemma ? "<eos>" : "";
  auto ok = decide("add_bos_token", unsaid, "bos_token", begin, d.before);
  return ok ? decide("add_eos_token", false, "eos_token", end, d.after) : ok;
}

/// Only a ByteLevel step at the top is changed; in a sequence the setting has no effect in
/// transformers either, which looks for the key at the top of pre_tokenizer.
void tokenizer_settings::add_prefix_space(tokenizer_document& d) const {
  const auto& wish = config_.at("add_prefix_space");
  auto& words = d.content["pre_tokenizer"];
  if (!wish.is_null() && words.is_object() && words.value("type", json{}) == "ByteLevel")
    words["add_prefix_space"] = wish;
}

/// JSON exceptions name the file that was being read, hence `at` moves on with the work.
expected<void> tokenizer_settings::apply(tokenizer_document& d) const {
  // make_json_tokenizer() refuses a model that is no byte pair encoding.
  if (!d.content.contains("model") || !d.content["model"].contains("vocab") ||
      !d.content["model"]["vocab"].is_object())
    return {};
  const auto* at = &d.file;
  try {
    added_token_list list{d.content};
    at = config_.content.is_null() ? &added_.path : &config_.path;
    auto ok = refuse_unknown();
    if (ok) ok = add_tokens(list);
    if (ok) ok = frame_texts(list, d);
    if (ok) add_prefix_space(d);
    d.splits_special = is_true(config_.at("split_special_tokens"));
    return ok;
  } catch (const json::exception& e) {
    return refuse(reason::kind::malformed, "{}: {}", at->string(), e.what());
  }
}

}  // namespace troupe::gpu
