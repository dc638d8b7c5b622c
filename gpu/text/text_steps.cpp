#include "gpu/text/text_steps.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "messages/admission.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;

// As in GPT-2's encoder.py; what ByteLevel splits with unless told not to.
constexpr char byte_level_words[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

tl::unexpected<reason> unsupported(const char* what, const std::string& found) {
  return refuse(reason::kind::invalid,
                fmt::format("{}: '{}' is not supported", what, admission::shown(found)));
}

bool set(const json& one, const char* key, bool otherwise) {
  return one.contains(key) && !one[key].is_null() ? one[key].get<bool>() : otherwise;
}

/// A text that matches itself.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c)))
      out += '\\';
    out += c;
  }
  return out;
}

std::string composed(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                              static_cast<utf8proc_ssize_t>(text.size()), &out,
                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner{out, std::free};
  if (n < 0) return text;  // not UTF-8
  return {reinterpret_cast<const char*>(out), static_cast<std::size_t>(n)};
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::vector<const json*> parts_of(const json& all, const char* list) {
  if (all.is_null()) return {};
  if (all.at("type") != "Sequence") return {&all};
  std::vector<const json*> parts;
  for (const auto& one : all.at(list))
    for (const auto* inner : parts_of(one, list)) parts.push_back(inner);
  return parts;
}

}  // namespace

expected<normalizer> normalizer::read(const json& all) {
  normalizer n;
  for (const auto* one : parts_of(all, "normalizers")) {
    const auto type = one->at("type").get<std::string>();
    step s;
    if (type == "Prepend") {
      s.what = step::kind::prepend;
      s.to = one->at("prepend").get<std::string>();
    } else if (type == "Replace") {
      const auto& from = one->at("pattern");
      s.to = one->at("content").get<std::string>();
      s.what = from.contains("String") ? step::kind::replace : step::kind::replace_pattern;
      s.from = from.contains("String") ? from["String"].get<std::string>() : "";
      if (s.what == step::kind::replace && s.from.empty()) return unsupported("normalizer", "");
      if (s.what == step::kind::replace_pattern) {
        auto p = pattern::compile(from.at("Regex").get<std::string>());
        if (!p) return refuse(p.error());
        s.where = std::move(*p);
      }
    } else if (type != "NFC") {
      return unsupported("normalizer", type);
    }
    n.steps_.push_back(std::move(s));
  }
  return n;
}

std::string normalizer::apply(std::string text) const {
  for (const auto& s : steps_) switch (s.what) {
      case step::kind::prepend:
        if (!text.empty()) text = s.to + text;
        break;
      case step::kind::replace:
        replace_all(text, s.from, s.to);
        break;
      case step::kind::replace_pattern: {
        std::string out;
        for (const auto& p : s.where.split(text)) out += p.matched ? s.to : std::string{p.text};
        text = out;
        break;
      }
      case step::kind::nfc:
        text = composed(text);
    }
  return text;
}

expected<pretokenizer> pretokenizer::read(const json& all) {
  pretokenizer p;
  for (const auto* one : parts_of(all, "pretokenizers"))
    if (auto ok = p.add(*one); !ok) return refuse(ok.error());
  return p;
}

expected<void> pretokenizer::add_pattern(const std::string& expression, step::kind what) {
  auto p = pattern::compile(expression);
  if (!p) return refuse(p.error().code, fmt::format("pre_tokenizer: {}", p.error().text));
  step s;
  s.what = what;
  s.where = std::move(*p);
  steps_.push_back(std::move(s));
  return {};
}

/// Spaces become a character of their own, with which words begin.
expected<void> pretokenizer::add_metaspace(const json& one) {
  const auto mark = one.at("replacement").get<std::string>();
  step s;
  s.what = step::kind::metaspace;
  s.replacement = mark;
  const auto scheme = one.contains("prepend_scheme") ? one["prepend_scheme"].get<std::string>()
                      : set(one, "add_prefix_space", true) ? "always"
                                                           : "never";
  if (scheme != "never")
    s.scheme = scheme == "first" ? step::prepend::first : step::prepend::always;
  steps_.push_back(s);
  if (!set(one, "split", true)) return {};
  const auto q = quoted(mark);
  return add_pattern(fmt::format("{0}(?:(?!{0}).)*|(?:(?!{0}).)+", q), step::kind::split);
}

expected<void> pretokenizer::add(const json& one) {
  const auto type = one.at("type").get<std::string>();
  if (type == "ByteLevel") {
    byte_level_ = true;
    if (set(one, "add_prefix_space", true)) {
      step s;
      s.what = step::kind::prefix_space;
      steps_.push_back(s);
    }
    return set(one, "use_regex", true) ? add_pattern(byte_level_words, step::kind::split)
                                       : expected<void>{};
  }
  if (type == "Digits")
    return add_pattern(set(one, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)",
                       step::kind::split);
  if (type == "Metaspace") return add_metaspace(one);
  if (type != "Split") return unsupported("pre_tokenizer", type);
  const auto& from = one.at("pattern");
  const auto expression = from.contains("String") ? quoted(from["String"].get<std::string>())
                                                  : from.at("Regex").get<std::string>();
  const auto behavior = one.at("behavior").get<std::string>();
  const bool invert = set(one, "invert", false);
  if (behavior == "Isolated" && !invert) return add_pattern(expression, step::kind::split);
  if (behavior == "Removed" && invert) return add_pattern(expression, step::kind::matches);
  return unsupported("pre_tokenizer: Split", behavior + (invert ? ", inverted" : ""));
}

std::vector<std::string> pretokenizer::apply(const std::string& text, bool begins) const {
  std::vector<std::string> words{text};
  for (const auto& s : steps_) {
    std::vector<std::string> next;
    for (auto& word : words) {
      if (s.what == step::kind::prefix_space) {
        next.push_back(word.starts_with(' ') ? word : " " + word);
      } else if (s.what == step::kind::metaspace) {
        replace_all(word, " ", s.replacement);
        const bool prepends = s.scheme == step::prepend::always ||
                              (s.scheme == step::prepend::first && begins && next.empty());
        next.push_back(prepends && !word.starts_with(s.replacement) ? s.replacement + word : word);
      } else {
        for (const auto& p : s.where.split(word))
          if (p.matched || s.what == step::kind::split) next.emplace_back(p.text);
      }
    }
    words = std::move(next);
  }
  return words;
}

}  // namespace troupe::gpu
