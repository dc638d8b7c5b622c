#include "gpu/examples/example_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "messages/base/utf8.hpp"
#include "text/json/json_file.hpp"
#include "text/json/json_members.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;

constexpr std::string_view forms_text = "messages, conversations, prompt and completion, or text";

/// A value as an error shows it.
std::string found_value(const json& v) {
  return v.is_null() ? "nothing" : shown(v.dump(-1, ' ', false, json::error_handler_t::replace));
}

/// Is there a value that says anything?
bool says_something(const json& v) {
  return !v.is_null() && v != json::array() && v != json::object() && v != "" && v != false;
}

/// Reads one line; the first error is kept.
class line_parser {
 public:
  line_parser(const json& all, std::string place) : all_{all}, place_{std::move(place)} {}

  expected<example_line> run() {
    for (const char* key :
         {"tools", "functions", "tool_calls", "images", "image", "audio", "videos"})
      if (says_something(member(all_, key)))
        fail("found {}, expected none: examples are texts alone, without calls of tools", key);
    const auto found = form();
    if (found == "prompt")
      read_completion();
    else if (found == "text")
      read_text();
    else if (!found.empty())
      read_chat(found, member(all_, found.c_str()), found, true);
    if (!problem_ && line_.what == example_line::form::chat) check_chat();
    if (problem_) return refuse(*problem_);
    for (const auto& [key, value] : all_.items())
      if (key != found && !(found == "prompt" && key == "completion"))
        line_.more_keys.insert(shown(key));
    return std::move(line_);
  }

 private:
  template <class... Values>
  void fail(fmt::format_string<Values...> text, Values&&... values) {
    if (problem_) return;
    problem_ = because(reason::kind::invalid, "{}: {}", place_,
                       fmt::format(text, std::forward<Values>(values)...));
  }

  /// The key of the line's form; empty: it has none, or several.
  std::string form() {
    const bool completion = all_.contains("prompt") || all_.contains("completion");
    std::vector<std::string> found;
    for (const char* key : {"messages", "conversations", "text"})
      if (all_.contains(key)) found.emplace_back(key);
    if (completion) found.emplace_back("prompt");
    line_.key = found.empty() ? "" : found.front();
    if (found.empty()) {
      std::vector<std::string> keys;
      for (const auto& [key, value] : all_.items()) keys.push_back(shown(key));
      constexpr std::size_t max_shown = 8;
      keys.resize(std::min(keys.size(), max_shown));
      fail("found {}{}, expected {}", keys.empty() ? "no keys" : "the keys ", fmt::join(keys, ", "),
           forms_text);
    } else if (found.size() > 1) {
      fail("found {}, expected one of them", fmt::join(found, " and "));
    } else if (completion) {
      for (const char* key : {"prompt", "completion"})
        if (!all_.contains(key)) fail("found no {}, expected prompt and completion", key);
    }
    return problem_ ? "" : found.front();
  }

  void read_text() {
    const auto& v = member(all_, "text");
    if (!v.is_string() || v == "")
      return fail("text: found {}, expected a text that is not empty", found_value(v));
    line_.text = v.get<std::string>();
  }

  // Lists of messages are a conversation, whose answers behind the prompt count.
  void read_completion() {
    const auto &prompt = member(all_, "prompt"), &completion = member(all_, "completion");
    if (prompt.is_array() && completion.is_array()) {
      read_chat("prompt", prompt, "prompt", false);
      return read_chat("completion", completion, "completion", true);
    }
    for (const auto& [key, v] : {std::pair{"prompt", &prompt}, {"completion", &completion}})
      if (!v->is_string())
        return fail("{}: found {}, expected a text, or prompt and completion as lists of messages",
                    key, found_value(*v));
    line_.what = example_line::form::completion;
    line_.prompt = prompt.get<std::string>();
    line_.text = completion.get<std::string>();
    if (line_.text.empty()) fail("completion: found an empty text, expected an answer");
  }

  void read_chat(const std::string& key, const json& all, const std::string& at, bool counts) {
    line_.what = example_line::form::chat;
    if (!all.is_array()) return fail("{}: found {}, expected a list", at, found_value(all));
    for (std::size_t i = 0; i < all.size() && !problem_; ++i)
      read_message(all[i], key == "conversations", fmt::format("{}[{}]", at, i), key, counts);
  }

  void read_message(const json& m, bool pairs, const std::string& at, const std::string& key,
                    bool counts) {
    if (!m.is_object()) return fail("{}: found {}, expected an object", at, found_value(m));
    for (const char* other : {"tool_calls", "function_call", "images", "image", "audio"})
      if (says_something(member(m, other)))
        return fail(
            "{}.{}: found one, expected none: examples are texts alone, without calls of "
            "tools",
            at, other);
    chat_message out;
    out.role = role_of(m, pairs, at);
    read_content(member(m, pairs ? "value" : "content"), at + (pairs ? ".value" : ".content"), out);
    const bool answer = out.role == "assistant";
    const bool used = weight_of(m, at, answer);
    if (answer && out.text.empty()) fail("{}: found an empty answer, expected a text", at);
    read_further(m, pairs, at, key, out);
    line_.messages.push_back(std::move(out));
    line_.trained.push_back(answer && counts && used);
  }

  // `developer` is the newer name of `system`; templates know the older one, which is also what a
  // server gives them.
  std::string role_of(const json& m, bool pairs, const std::string& at) {
    using names = std::pair<std::string_view, std::string_view>;
    constexpr std::array known{names{"system", "system"}, names{"developer", "system"},
                               names{"user", "user"}, names{"assistant", "assistant"}};
    constexpr std::array of_pairs{names{"system", "system"}, names{"human", "user"},
                                  names{"gpt", "assistant"}, names{"user", "user"},
                                  names{"assistant", "assistant"}};
    const char* key = pairs ? "from" : "role";
    const auto& v = member(m, key);
    const std::span<const names> all = pairs ? std::span<const names>{of_pairs} : known;
    for (const auto& [name, role] : all)
      if (v == name) return std::string{role};
    if (v == "tool" || v == "function")
      fail("{}.{}: found {}, expected no calls of tools", at, key, found_value(v));
    else
      fail(
          "{}.{}: found {}, expected {}", at, key, found_value(v),
          pairs ? "human, gpt, system, user or assistant" : "system, user, assistant or developer");
    return {};
  }

  void read_content(const json& v, const std::string& at, chat_message& out) {
    if (v.is_string()) {
      out.text = v.get<std::string>();
      return;
    }
    if (!v.is_array()) return fail("{}: found {}, expected a text", at, found_value(v));
    for (const auto& part : v) {
      const auto& words = member(part, "text");
      if (member(part, "type") != "text" || !words.is_string())
        return fail("{}: found a part {}, expected parts of type text", at, found_value(part));
      out.parts.push_back(words.get<std::string>());
      out.text += out.parts.back();
    }
  }

  bool weight_of(const json& m, const std::string& at, bool answer) {
    const auto& v = member(m, "weight");
    if (v.is_null()) return true;
    if (!answer)
      fail("{}.weight: found {}, expected none: only an assistant's message may have a weight", at,
           found_value(v));
    if (v != 0 && v != 1) fail("{}.weight: found {}, expected 0 or 1", at, found_value(v));
    return v != 0;
  }

  /// The keys that a served request's message may have for the template, too.
  void read_further(const json& m, bool pairs, const std::string& at, const std::string& key,
                    chat_message& out) {
    constexpr std::string_view read[] = {"name", "reasoning_content", "reasoning"};
    auto more = json::object();
    for (const auto& [name, value] : m.items()) {
      if (name == (pairs ? "from" : "role") || name == (pairs ? "value" : "content") ||
          name == "weight")
        continue;
      if (std::ranges::find(read, name) == std::end(read)) {
        line_.more_keys.insert(key + "." + shown(name));
      } else if (value.is_string()) {
        more[name] = value;
      } else if (!value.is_null()) {
        fail("{}.{}: found {}, expected a text", at, name, found_value(value));
      }
    }
    if (more.contains("reasoning") && !more.contains("reasoning_content"))
      more["reasoning_content"] = more["reasoning"];
    if (!more.empty()) out.more = more.dump();
  }

  void check_chat() {
    const bool answered = std::ranges::any_of(
        line_.messages, [](const chat_message& m) { return m.role == "assistant"; });
    if (std::ranges::find(line_.trained, true) != line_.trained.end()) return;
    fail("found {}, expected an answer of the assistant",
         answered ? "no answer that counts" : "no answer");
  }

  const json& all_;
  const std::string place_;
  example_line line_;
  std::optional<reason> problem_;
};

std::optional<std::size_t> invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto c = first_character(text.substr(at));
    if (!c.valid) return at;
    at += c.bytes;
  }
  return {};
}

}  // namespace

expected<example_line> read_example_line(std::string_view line, const std::string& place) {
  if (const auto at = invalid_utf8(line))
    return refuse(reason::kind::malformed, "{}: found the byte {:#04x} at {}, expected UTF-8",
                  place, static_cast<unsigned char>(line[*at]), *at);
  const auto first = line.find_first_not_of(" \t\r");
  const auto d = parse_json_of_unique_names(line, place);
  if (!d && (first == line.npos || line[first] != '{' || !json::accept(line)))
    return refuse(reason::kind::malformed, "{}: found '{}', expected a JSON object with {}", place,
                  shown(line), forms_text);
  if (!d) return refuse(d.error());
  return line_parser{*d, place}.run();
}

}  // namespace troupe::gpu
