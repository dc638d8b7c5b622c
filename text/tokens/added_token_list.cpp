#include "text/tokens/added_token_list.hpp"

#include <algorithm>

#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;

json& list_of(json& document) {
  auto& list = document["added_tokens"];
  if (list.is_null()) list = json::array();
  return list;
}

}  // namespace

added_token_list::added_token_list(json& document)
    : list_{list_of(document)}, vocabulary_{document.at("model").at("vocab")} {
  for (std::size_t i = 0; i < list_.size(); ++i) {
    by_name_.try_emplace(list_[i].at("content").get<std::string>(), i);
    by_number_.try_emplace(list_[i].at("id").get<std::uint32_t>(), list_[i]["content"]);
  }
}

std::optional<std::uint32_t> added_token_list::number_of(const std::string& name) const {
  if (const auto found = by_name_.find(name); found != by_name_.end())
    return list_[found->second].at("id").get<std::uint32_t>();
  const auto found = vocabulary_.find(name);
  return found == vocabulary_.end() ? std::nullopt : std::optional{found->get<std::uint32_t>()};
}

/// Behind all others, as transformers numbers new tokens. Linear in the vocabulary, but called only
/// for special names without a number, which are few.
std::uint32_t added_token_list::next_number() const {
  std::uint32_t next = 0;
  for (const auto& number : vocabulary_) next = std::max(next, number.get<std::uint32_t>() + 1);
  for (const auto& [number, name] : by_number_) next = std::max(next, number + 1);
  return next;
}

expected<void> added_token_list::check(const std::filesystem::path& file, std::uint32_t number,
                                       const std::string& name) const {
  if (const auto other = number_of(name); other && *other != number)
    return refuse(reason::kind::invalid, "{}: token '{}' has the number {}, in the vocabulary {}",
                  file.string(), shown(name), number, *other);
  if (const auto found = by_number_.find(number);
      found != by_number_.end() && found->second != name)
    return refuse(reason::kind::invalid, "{}: number {} is the token '{}', in the vocabulary '{}'",
                  file.string(), number, shown(name), shown(found->second));
  return {};
}

void added_token_list::push(json token, std::uint32_t number) {
  const auto name = token.at("content").get<std::string>();
  token["id"] = number;
  by_name_.try_emplace(name, list_.size());
  by_number_.try_emplace(number, name);
  list_.push_back(std::move(token));
}

/// Flags of the later file replace those before, except that a special token stays special.
expected<void> added_token_list::add(const std::filesystem::path& file, std::uint32_t number,
                                     const json& token) {
  const auto name = token.at("content").get<std::string>();
  if (auto ok = check(file, number, name); !ok) return ok;
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    push(token, number);
    return {};
  }
  auto& old = list_[found->second];
  const bool special = old.value("special", false) || token.value("special", false);
  old = token;
  old["id"] = number;
  old["special"] = special;
  return {};
}

expected<void> added_token_list::add_name(const std::filesystem::path& file, std::uint32_t number,
                                          const std::string& name, bool special) {
  if (auto ok = check(file, number, name); !ok) return ok;
  if (!by_name_.contains(name)) push({{"content", name}, {"special", special}}, number);
  return {};
}

void added_token_list::add_special(const json& token) {
  auto flags = token.is_object() ? token : json{{"content", token}};
  const auto name = flags.at("content").get<std::string>();
  if (name.empty()) return;
  if (const auto found = by_name_.find(name); found != by_name_.end()) {
    // A normalized name stays one: only what it does in a text is new.
    auto& old = list_[found->second];
    if (!old.contains("normalized")) old["normalized"] = !old.value("special", false);
    old["special"] = true;
    return;
  }
  flags["special"] = true;
  if (!flags.contains("normalized")) flags["normalized"] = false;
  const auto number = number_of(name);
  push(std::move(flags), number ? *number : next_number());
}

}  // namespace troupe::gpu
