#include "runtime/process/visible_gpus.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "messages/base/refuse.hpp"

namespace troupe::runtime {

namespace {

constexpr const char* variable = "CUDA_VISIBLE_DEVICES";

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const auto comma = text.find(',');
    auto word = text.substr(0, comma);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    words.push_back(word);
    if (comma == text.npos) return words;
    text.remove_prefix(comma + 1);
  }
}

std::optional<std::uint32_t> index_in(std::string_view word) {
  std::uint32_t n = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
  if (error != std::errc{} || end != word.data() + word.size()) return {};
  return n;
}

/// "GPU-" or "MIG-", and what can follow it: a UUID, or its beginning, and for MIG the older form
/// "MIG-GPU-UUID/1/0".
bool is_name(std::string_view word) {
  if (!word.starts_with("GPU-") && !word.starts_with("MIG-")) return false;
  const auto is_part = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '/';
  };
  return word.size() > 4 && std::ranges::all_of(word, is_part);
}

}  // namespace

expected<visible_gpus> visible_gpus::read(const char* value) {
  visible_gpus out;
  if (!value) return out;
  auto& names = out.names_.emplace();
  const std::string_view text{value};
  for (const auto word : split(text)) {
    const auto number = index_in(word);
    if (!number && !is_name(word)) {
      out.rest_ = word;
      break;
    }
    auto name = number ? std::to_string(*number) : std::string{word};
    if (std::ranges::find(names, name) != names.end())
      return refuse(reason::kind::invalid, "{}: '{}' lists {} twice, and CUDA finds no GPU then",
                    variable, text, name);
    names.push_back(std::move(name));
  }
  return out;
}

visible_gpus visible_gpus::own() {
  auto all = read(std::getenv(variable));
  if (all) return std::move(*all);
  visible_gpus none;
  none.names_.emplace();
  return none;
}

expected<void> visible_gpus::suffice(std::string_view node, std::uint32_t gpus) const {
  if (!names_ || names_->size() >= gpus) return {};
  const auto why = rest_.empty() ? std::string{}
                                 : fmt::format(
                                       " (CUDA stops reading at '{}', which is no number, GPU-UUID "
                                       "or MIG name)",
                                       rest_.size() > 40 ? rest_.substr(0, 40) + "..." : rest_);
  return refuse(reason::kind::invalid,
                "{} shows {} GPU{}{}, and the cluster file gives {} {}; list as many, or unset it",
                variable, names_->size(), names_->size() == 1 ? "" : "s", why, node, gpus);
}

std::string visible_gpus::names_of(std::string_view numbers) const {
  if (!names_) return std::string{numbers};
  std::vector<std::string> given;
  for (const auto word : split(numbers))
    if (const auto n = index_in(word); n && *n < names_->size()) given.push_back((*names_)[*n]);
  return fmt::format("{}", fmt::join(given, ","));
}

void visible_gpus::name_in(std::vector<std::pair<std::string, std::string>>& environment) const {
  for (auto& [name, value] : environment)
    if (name == variable) value = names_of(value);
}

expected<void> check_visible_gpus(std::string_view node, std::uint32_t gpus) {
  const auto all = visible_gpus::read(std::getenv(variable));
  if (!all) return refuse(all.error());
  return all->suffice(node, gpus);
}

}  // namespace troupe::runtime
