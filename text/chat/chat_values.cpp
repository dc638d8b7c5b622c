#include "text/chat/chat_values.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "messages/base/refuse.hpp"
#include "text/json/ordered_json.hpp"

namespace troupe::gpu {

namespace {

// Templates write objects in the order in which their keys were given.
using nlohmann::ordered_json;

constexpr std::size_t max_value_levels = 32;
constexpr std::size_t max_object_keys = 256;

/// Roles of the API; a template makes special tokens of them. Others are a client's text.
bool is_known_role(std::string_view role) {
  constexpr std::string_view known[] = {"system", "user", "assistant", "developer", "tool"};
  return std::find(std::begin(known), std::end(known), role) != std::end(known);
}

/// Null: it is no JSON, or has too many levels or keys.
ordered_json read_ordered(std::string_view text) {
  return parse_in_order(text, {max_value_levels, max_object_keys}).value_or(ordered_json{});
}

jinja::value jinja_value_of(const ordered_json& d, jinja::work& w) {
  switch (d.type()) {
    case ordered_json::value_t::boolean:
      return jinja::value{d.get<bool>()};
    case ordered_json::value_t::number_integer:
      return jinja::value{d.get<std::int64_t>()};
    case ordered_json::value_t::number_unsigned:
      if (d.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max())
        return jinja::value{d.get<std::int64_t>()};
      return jinja::value{d.get<double>()};
    case ordered_json::value_t::number_float:
      return jinja::value{d.get<double>()};
    case ordered_json::value_t::string:
      return jinja::value{jinja::text{d.get<std::string>(), true}};
    case ordered_json::value_t::array: {
      std::vector<jinja::value> all;
      for (const auto& one : d) all.push_back(jinja_value_of(one, w));
      return jinja::value{jinja::list{std::move(all)}};
    }
    case ordered_json::value_t::object: {
      jinja::dictionary all;
      for (const auto& [key, one] : d.items())
        all.set(jinja::text{key, true}, jinja_value_of(one, w), w);
      return jinja::value{std::move(all)};
    }
    default:
      return jinja::value{jinja::none{}};
  }
}

/// Templates write the arguments of a call as an object; the API has that as a text.
bool read_arguments(ordered_json& call) {
  if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
    return false;
  auto& function = call["function"];
  const auto given = function.find("arguments");
  if (given == function.end() || !given->is_string()) return true;
  const auto& text = given->get_ref<const std::string&>();
  auto object = text.empty() ? ordered_json::object() : read_ordered(text);
  if (!object.is_object()) return false;
  *given = std::move(object);
  return true;
}

jinja::value content_value(const chat_message& m, content_form form, jinja::work& w) {
  if (form == content_form::text) return jinja::text{m.text, true};
  std::vector<jinja::value> parts;
  for (const auto& text : m.parts.empty() ? std::vector{m.text} : m.parts) {
    jinja::dictionary part;
    part.set("type", "text", w);
    part.set("text", jinja::text{text, true}, w);
    parts.emplace_back(std::move(part));
  }
  return jinja::list{std::move(parts)};
}

}  // namespace

expected<jinja::value> values_of(std::span<const chat_message> messages, content_form form) try {
  std::vector<jinja::value> all;
  jinja::work w;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& m = messages[i];
    jinja::dictionary d;
    d.set("role", jinja::text{m.role, !is_known_role(m.role)}, w);
    if (m.has_content) d.set("content", content_value(m, form, w), w);
    auto more = m.more.empty() ? ordered_json::object() : read_ordered(m.more);
    bool good = more.is_object();
    if (good && more.contains("tool_calls"))
      for (auto& call : more["tool_calls"]) good = good && read_arguments(call);
    if (!good)
      return refuse(
          reason::kind::invalid,
          "message {}: expected calls of tools with a function whose arguments are a JSON "
          "object of at most {} levels and {} keys",
          i, max_value_levels, max_object_keys);
    for (const auto& [key, one] : more.items()) d.set(jinja::text{key}, jinja_value_of(one, w), w);
    all.emplace_back(std::move(d));
  }
  return jinja::value{jinja::list{std::move(all)}};
} catch (const jinja::error& e) {
  return refuse(reason::kind::invalid, "the messages: {}", e.what());
}

expected<void> add_names(std::string_view object, template_names& to) try {
  if (object.empty()) return {};
  const auto d = read_ordered(object);
  if (!d.is_object())
    return refuse(reason::kind::invalid,
                  "the template's names: expected a JSON object of at most {} levels and {} keys",
                  max_value_levels, max_object_keys);
  jinja::work w;
  for (const auto& [key, one] : d.items()) to[key] = jinja_value_of(one, w);
  return {};
} catch (const jinja::error& e) {
  return refuse(reason::kind::invalid, "the template's names: {}", e.what());
}

}  // namespace troupe::gpu
